"""The data landscape as operators describe it in files: data nodes, edges between them, executors.

Read first: `model.py` for what a file holds, then `graph.py` for what compilers search. `files.py` reads a folder and
names all its faults, `catalog.py` holds the newest graph without faults and tells listeners of changes.
"""
