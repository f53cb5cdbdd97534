"""The demo: a project folder on real flights, written by `gobblin init` and `make demo`, or `make service`.

`project` writes the folder from a packaged slice and lets further days arrive, `full` writes one with all flights of
2013, `flights` sorts rows into files; `template/` and `service/` hold what is no data. They import `core` only; read
`project` first. `downstream` is an asset that loads what the demo publishes; it alone imports Dagster. The data are in
the public domain (LICENSE-DATA.md beside this file).
"""

from gobblin_dagster.demo.project import add_day, write_demo, write_service

__all__ = ["add_day", "write_demo", "write_service"]
