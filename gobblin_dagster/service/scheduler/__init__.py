"""Which flow is due when, and who fires it."""
