"""Run a job. Stages in order: recovery, acquire, execute, commit_planner, publish, record. Read first: `job_run`."""
