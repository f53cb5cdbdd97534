"""Small helpers that know nothing of pipelines."""
