"""Quality policies: row-level ones check rows, task-level ones check a branch's output before it is published."""
