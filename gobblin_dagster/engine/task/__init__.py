"""What runs inside one Spark task. Plain Python and Arrow: neither pyspark nor dagster is imported here.

`multi_work_unit.py` runs several work units one after the other, `work_unit.py` runs one, `row_pipeline.py` its converters
and row-level policies, `branch.py` one branch of its fork. `checkpoint.py` writes the files that say which work units are
started and done. `runner.py` is the protocol of what starts tasks. Read first: `work_unit.py`.
"""
