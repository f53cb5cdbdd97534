"""Plan (job file -> plan), run (plan -> staged files, on Spark), commit (staged files -> published, exactly once).

- `plan/`: what a run would read. `task/`: what happens inside one Spark task. `commit/`: the commit protocol.
- `run/`: one run of a job, from recovery to the run record. `spark/`: the only room that knows Spark.
- `snapshots/`: reading what is published. `maintenance/`: what people do by hand after runs.
- `project.py` opens a project folder, `validation.py` checks a job file, `job_context.py` holds what all stages of a
  run need.

Read first: `run/job_run.py`.
"""
