"""The built-in parts that a job file names: sources, formats, converters, quality policies, forks, writers, publishers.

One folder per kind, and below `sources/` one folder per system. All work on Arrow record batches and implement the
protocols of `core.constructs`. `registry.py` finds a construct by its name. `clients/`, `types/`, `options/` and `sql/`
hold what several constructs share. May import `core`, `storage`, `database`, `spec` and `state`. Read first:
`registry.py`.
"""
