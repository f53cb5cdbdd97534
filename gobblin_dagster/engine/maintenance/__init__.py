"""Maintenance by people between runs: change state, roll back, compact, clean, verify, replay, abandon."""
