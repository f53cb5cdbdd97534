"""plan (spec -> plan as data), run (plan -> staged files, on Spark), commit (staged files -> published, exactly once).

`job.py` is the way of the data from recovery to report, `open_job.py` what all its parts work with; `recovery.py`, `plan.py`,
`claim.py`, `extract.py` (with `lane/` and `decide.py`) and `publish.py` (with `commit/`) are the parts, in this order;
`spark.py` is the only module here that knows Spark, and only `launch.py` imports it. Read `job.py` first.
"""
