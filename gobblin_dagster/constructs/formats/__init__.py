"""File formats: how a file becomes batches. Read first: `base`."""
