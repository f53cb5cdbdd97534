"""SQL in job files: `syntax` checks it when a file is read; `select` and `masks` evaluate it in a DuckDB `session`."""
