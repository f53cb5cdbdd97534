"""Apache Gobblin's ingestion, declared in files, run on Spark, seen in Dagster.

Packages, in the direction of their imports (each imports only from those before it):
`core` values and protocols, `storage` files as the commit sees them, `spec` what users declare, `state` where progress is
kept, `constructs` built-in sources, converters, policies, forks and writers, `engine` plan, run and commit, `orchestration`
the Dagster layer, `cli` the command line. `testing` holds fakes and fault points for people who write their own constructs.

Start with `core/work_unit.py` for the words, then `engine/run/job_run.py` for the way of the data.
"""

__version__ = "0.1.0"
