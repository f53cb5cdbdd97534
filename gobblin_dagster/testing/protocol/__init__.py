"""Crash tests of the commit protocol: crash schedules, random faults, power loss, a model. Read first: `scenario`."""
