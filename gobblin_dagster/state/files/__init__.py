"""The state store in plain files. Read first: `store`."""
