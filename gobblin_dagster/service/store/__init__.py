"""The tables in which all nodes of a service meet: flows with their history, executions, events, roles, audit."""
