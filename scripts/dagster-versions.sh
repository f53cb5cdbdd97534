#!/usr/bin/env bash
# Run the tests of the Dagster layer with the oldest and the newest supported Dagster, beside the installed one.
#
# Dagster alone is replaced, without its web server: its packages are unpacked into a folder that Python searches first.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
shift || true
oldest=1.13.0
versions=$("$python" -m pip index versions dagster 2>/dev/null)
newest=$(grep -o '1\.13\.[0-9]*' <<<"$versions" | sort -V | tail -n 1)
for version in ${DAGSTER:-$oldest $newest}; do
  folder=.work/dagster-$version
  if [ ! -e "$folder/done" ]; then
    "$python" -m pip install --quiet --no-deps --upgrade --target "$folder" \
      "dagster==$version" "dagster-pipes==$version" "dagster-shared==$version" "dagster-graphql==$version"
    touch "$folder/done"
  fi
  echo "+ Dagster $(PYTHONPATH=$folder "$python" -c 'import dagster; print(dagster.__version__)')"
  PYTHONPATH=$PWD/$folder:$PWD "$python" -m pytest -q -n0 -p no:cacheprovider tests/unit/orchestration "$@"
done
