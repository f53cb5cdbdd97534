"""Source `spark`: whatever Spark can read. Read first: `source`."""
