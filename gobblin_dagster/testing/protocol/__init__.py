"""The laboratory of the commit protocol: crash schedules, fault storms, power loss, and a model. Read first: `scenario`."""
