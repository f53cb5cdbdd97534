"""The state store in a SQL database. Read first: `store`."""
