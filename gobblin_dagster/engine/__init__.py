"""plan (spec -> plan as data), run (plan -> staged files, on Spark), commit (staged files -> published, exactly once).

`job.py` is the way of the data from recovery to report; `plan.py`, `lane/`, `decide.py`, `commit/` are its parts;
`spark.py` is the only module here that knows Spark, and only `launch.py` imports it. Read `job.py` first.
"""
