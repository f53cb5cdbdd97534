"""The built-in parts that a job names: sources and extractors, converters, quality policies, forks, writers.

A folder per concept; all work on Arrow record batches and implement the protocols of `core.constructs`. `registry.py` finds
them by name, `sql.py` evaluates SQL over batches. May import `core`, `storage`, `spec` and `state`. Read `registry.py` first.
"""
