"""Sources: find datasets, and cut their new rows into work units. Read first: `files/source.py`."""
