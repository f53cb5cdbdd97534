"""Gobblin's own job files: `.pull`, `.job` (Java properties) and `.conf` (HOCON), read as job files of ours.

Read first: `keys.py` (which key became which field), then `job.py` (how a file becomes a job).
"""
