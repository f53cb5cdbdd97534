"""Quality policies: row-level ones judge rows, task-level ones judge the output of a branch before it is published."""
