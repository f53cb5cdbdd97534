"""Source `rest`: pages of an HTTP API. Read first: `source`."""
