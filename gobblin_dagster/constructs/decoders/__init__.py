"""Decoders: how the bytes of a message become columns. Read first: `base`."""
