"""The concepts of an ingestion, as values and protocols.

Imports the standard library, pydantic and pyarrow's types only.

Read first: `work_unit.py`, `watermark/`, `task_state.py`, `commit.py`, `constructs/`.
"""
