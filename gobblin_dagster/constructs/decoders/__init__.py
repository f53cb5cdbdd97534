"""Decoders: convert the bytes of messages to columns. Read first: `base`."""
