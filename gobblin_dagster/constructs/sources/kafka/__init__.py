"""Source `kafka`: topics. Read first: `source`."""
