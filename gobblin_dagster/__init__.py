"""Apache Gobblin's ingestion, declared in files, run on Spark, seen in Dagster.

Packages, from the bottom to the top; each imports only from those before it:
- `core`: values and protocols.
- `storage`: files on local disk, S3, HDFS and others, with the guarantees that a commit needs.
- `database`: engines, dialects and migrations of SQL databases, without tables.
- `spec`: what users declare in job files.
- `state`: the state store: watermarks, commit sequences, leases, run history.
- `constructs`: built-in sources, formats, converters, policies, forks, writers and publishers.
- `engine`: plan, run and commit.
- `testing`: what people need who test constructs of their own, and the crash laboratory of the commit protocol.
- `orchestration`: the Dagster layer.
- `demo`: a project on real flights.
- `cli`: the command line.

Read first: `core/work_unit.py` for the words, then `engine/run/job_run.py` for one run from recovery to report.
"""

__version__ = "0.1.0"
