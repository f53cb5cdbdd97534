"""Converters: change chunks before the fork or inside a branch."""
