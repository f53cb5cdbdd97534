"""Run work units inside one Spark task. Plain Python and Arrow: neither pyspark nor dagster is imported here.

`multi_work_unit.py` runs several work units one after the other, `work_unit.py` runs one, `row_pipeline.py` its
converters and row-level policies, `branch.py` one branch of its fork. `checkpoint.py` writes the files that record
which work units have started and finished. `runner.py` is the protocol of classes that start tasks. Read first:
`work_unit.py`.
"""
