"""Gobblin-as-a-Service: flows are posted, compiled into jobs, run by executors, and watched.

Rooms, from the bottom to the top; each imports only from those before it:
- `model`: flows, executions and statuses as values.
- `store`: the tables in which all nodes of a service meet.
- `security`: who asks, and what they may do.
- `catalog`: templates, and flows with their history.
- `topology`: data nodes, edges and executors, as operators describe them.
- `compiler`: a flow becomes a DAG of jobs.
- `executors`: where jobs run.
- `orchestrator`: starts jobs when their parents are complete, and folds events into statuses.
- `scheduler`: which flow is due when.
- `api`: REST, as Gobblin's own clients speak it.

Read first: `model.py` for the words, then `server.py` for what one process starts and stops.
"""
