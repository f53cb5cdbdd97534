"""Run packs of work units in Python processes of this machine, without Spark and its JVM.

- `runner`: the task runner; it runs in the driver. Read it first.
- `fork_server`: the process that imports what work units need once, and forks the workers.
- `slots`: how several runs share the processes.
- `worker`: a forked process; it runs one pack after the other.

Driver and worker share a socket each and send lines of JSON. When the driver dies, however it dies, the others end.
"""
