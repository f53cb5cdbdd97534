"""Types of option fields that several constructs share."""
