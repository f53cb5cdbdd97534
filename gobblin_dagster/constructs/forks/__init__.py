"""Fork operators: they say which branch takes which rows."""
