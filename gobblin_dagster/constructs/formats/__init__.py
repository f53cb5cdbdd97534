"""File formats: read files as batches. Read first: `base`."""
