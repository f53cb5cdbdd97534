"""Engines, dialects and migrations of SQL databases, for the packages with tables (`state`, `service`)."""
