#!/usr/bin/env bash
# Run the tests of the Dagster layer with the oldest and the newest supported Dagster, beside the installed one:
# dagster-versions.sh PYTHON [PYTEST-ARGUMENT...]. With `surface` in place of arguments, only those that show whether
# what we use of Dagster is still there: definitions load, runs, conditions and backfills, ticks of sensors, and all of
# `orchestration/_internal.py`.
#
# Dagster alone is replaced, without its web server: its packages are unpacked into a folder that Python searches first.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
shift || true
folder=tests/unit/orchestration
tests=("$folder" "$@")
[ "${1:-}" != surface ] || tests=(
  "$folder"/test_{automation,internal,partitions,schedules}.py
  "$folder/test_definitions.py::test_project_of_several_jobs_has_one_sensor_of_each_kind"
  "$folder/test_component.py::test_project_folder_gives_all_its_jobs_with_their_sensors"
  "$folder/test_sensors.py::test_new_data_asks_for_one_untagged_run_over_datasets_with_work"
  "$folder/test_sensors.py::test_sweep_reports_one_commit_after_the_other_of_a_dataset_with_checks"
  "$folder/test_sensors.py::test_sweep_ends_a_run_whose_process_is_gone"
)
oldest=1.13.0
installed=$("$python" -c 'from importlib.metadata import version; print(version("dagster"))')
offered=$("$python" -m pip --disable-pip-version-check index versions dagster 2>/dev/null) || {
  echo "The versions of Dagster cannot be asked for (pip index versions dagster); most often the network is missing." >&2
  exit 2
}
newest=$(grep -o '1\.13\.[0-9]*' <<<"$offered" | sort -V | tail -n 1)
[ "$newest" != "$installed" ] || newest="" # all other tests run with it
install=("$python" -m pip --disable-pip-version-check install)
[ ! -x "$(dirname "$python")/uv" ] || install=("$(dirname "$python")/uv" pip install --python "$python")
for version in ${DAGSTER:-$oldest $newest}; do
  there=.work/dagster-$version
  if [ ! -e "$there/done" ]; then
    "${install[@]}" --quiet --no-deps --target "$there" \
      "dagster==$version" "dagster-pipes==$version" "dagster-shared==$version" "dagster-graphql==$version"
    touch "$there/done"
  fi
  used=$(PYTHONPATH=$there "$python" -c 'import dagster; print(dagster.__version__)')
  [ "$used" = "$version" ] || { echo "Python took Dagster $used in place of $version from $there." >&2; exit 2; }
  echo "+ Dagster $version: pytest ${tests[*]}"
  PYTHONPATH=$PWD/$there:$PWD "$python" -m pytest -q -n0 -p no:cacheprovider --disable-warnings "${tests[@]}"
done
