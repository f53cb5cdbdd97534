"""Writers: they stage the rows of one branch of one work unit as files; read `files.py` first."""
