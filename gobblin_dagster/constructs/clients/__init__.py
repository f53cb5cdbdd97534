"""Connections to servers that several constructs use."""
