"""Converters: they turn chunks into other chunks, before the fork or inside a branch."""
