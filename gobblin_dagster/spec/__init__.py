"""What users declare: `gobblin.yaml` and job files, as frozen models, and the loading that reports every fault at once.

Imports `core` and PyYAML only. Read first: `job.py` (what a job may say), then `load.py` (how a file becomes one).
"""
