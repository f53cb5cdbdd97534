"""Show results: tables, plans, progress, JSON documents."""
