"""Extractors: they read what a work unit names; the `files` extractor and its formats (csv, jsonl, parquet).

Start with `files.py` and `format.py`.
"""
