"""The command line `gobblin`: thin commands that print what `engine` returns.

`commands/` has one module per command, with the command's name; `render/` turns results into text, tables and JSON.
`main.py` lists the commands and imports only the one that is called. Results go to stdout, logs and errors to stderr;
`--output json` documents carry `schema_version`.
"""
