"""The concepts as values and protocols; imports the standard library, pydantic and pyarrow's types only.

Read first: `work_unit.py`, `watermark.py`, `ranges.py`, `task_state.py`, `commit.py`, `constructs.py`.
"""
