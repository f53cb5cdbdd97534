"""A project for Python users: the commands of `gobblin` as methods, with results that are shown as tables.

`project` has the class that `open_project` returns; `state`, `startpoint`, `commit` and `quarantine` are its groups of
methods, as the command has groups of commands; `session` holds what they share. Users import these by
`gobblin_dagster.api`; nothing inside of the package does. May import up to `engine`. Read first: `project`.
"""
