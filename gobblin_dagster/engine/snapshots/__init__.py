"""Read published data through the snapshot manifests. Read first: `reader`."""
