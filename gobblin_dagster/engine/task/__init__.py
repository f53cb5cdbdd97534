"""The lane: what runs inside a Spark task. Plain Python and Arrow; neither pyspark nor dagster is imported here.

`pack.py` runs a pack of work units, `task.py` one work unit, `stage.py` converters and row-level policies, `branch.py` one
branch of the fork, `board.py` the started and done files; `protocol.py` says what runs packs. Read `task.py` first.
"""
