"""Sources: they find datasets and cut what is new of them into work units. Start with `files.py`."""
