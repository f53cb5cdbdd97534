"""Reading what is published, through the snapshot manifests. Read first: `reader`."""
