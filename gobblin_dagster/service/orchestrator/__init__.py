"""Starts jobs when their parents are complete, and folds events into statuses."""
