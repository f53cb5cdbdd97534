"""The warm worker: a local process that keeps Python and Spark between commands, and runs them one at a time.

The client hands its terminal (its standard streams) and its command line to the worker, which runs the command as if it
had been started there: the same output, signals and exit code. Imports only the standard library and `core.errors`, so
that a client begins at once. `cli` gives the worker what it runs.

- `address`: where the socket of a project is, and who may use it.
- `messages`: what client and worker say to each other.
- `watch`: notices what makes a running worker wrong: changed code, environment or configuration.
- `server`: the worker. `client`: finds or starts it, and waits for the end of the command.

Read first: `messages.py`.
"""
