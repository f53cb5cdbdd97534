"""Flows with their history, and the templates that they are made of."""
