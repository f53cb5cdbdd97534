"""`python -m gobblin_dagster`: the same as the command `gobblin`."""

from gobblin_dagster.cli.program import program

if __name__ == "__main__":
    program()
