"""`python -m gobblin_dagster`: the same as the command `gobblin`."""

import sys

from gobblin_dagster.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
