"""Plans: what a run would read, and how its work units are packed. Needs no Spark. Read first: `planner`."""
