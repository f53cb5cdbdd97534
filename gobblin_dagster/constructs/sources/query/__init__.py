"""Source `query`: tables and queries of databases. Read first: `source`."""
