"""What users declare in `gobblin.yaml` and job files: frozen models, and loading that reports all faults at once.

Imports `core` and PyYAML only. Read first: `job.py` (the fields of a job), then `load.py` (how files are loaded).
"""
