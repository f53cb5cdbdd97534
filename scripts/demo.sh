#!/usr/bin/env bash
# The demo: a project folder on real flights, and its first run. A second time there is nothing new to read.
set -euo pipefail
gobblin=$PWD/.venv/bin/gobblin

[ -e demo/gobblin.yaml ] || "$gobblin" init demo --template demo
cd demo
"$gobblin" run
cat <<'NEXT'

What next? `. .venv/bin/activate && cd demo`, then:
  gobblin run                                        nothing new: nothing to do
  python -m gobblin_dagster.demo add-day .           files of one more day arrive; `gobblin run` reads only those
  gobblin state list                                 how far each dataset is
  gobblin dev                                        the same in Dagster's pages
NEXT
