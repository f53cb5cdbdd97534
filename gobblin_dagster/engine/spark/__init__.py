"""Spark for the engine: the session, the runner that starts tasks, and the Java that it needs."""
