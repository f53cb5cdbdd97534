"""Who asks, what they may do, and the record of it."""
