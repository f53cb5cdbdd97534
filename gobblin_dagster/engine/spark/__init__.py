"""Everything of the engine that knows Spark: the session, the runner that starts tasks, and the Java that it needs."""
