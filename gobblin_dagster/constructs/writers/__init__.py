"""Writers: stage the rows of one branch of one work unit as files. Read first: `files.py`."""
