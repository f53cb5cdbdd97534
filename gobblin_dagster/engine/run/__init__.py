"""One run of a job. Its stages in order: recovery, acquire, execute, commit_planner, publish, record. Read first: `job_run`."""
