"""Read Gobblin's job files as ours: `.pull`, `.job` (Java properties) and `.conf` (HOCON).

Read first: `keys.py` (which key becomes which field), then `job.py` (how a file becomes a job).
"""
