"""The command line `gobblin`: thin commands that print what `engine` returns.

`main.py` knows the names of the commands and loads the module of the one that is called: a command pays only for what it
imports. Results go to stdout, logs and errors to stderr; `--output json` documents carry `schema_version`.
"""
