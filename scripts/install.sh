#!/usr/bin/env bash
# Makes the virtual environment and installs the project with pinned versions: install.sh PYTHON VENV [EXTRA]
set -euo pipefail
. "$(dirname "$0")/lib.sh"
python=$1 venv=$2 extra=${3:-}

# An attempt that was cut off, or Debian's Python without its venv package, leaves a folder without pip behind.
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  command -v "$python" >/dev/null || fail "'$python' was not found: install Python 3.11 or newer, or name one: make demo PYTHON=python3.11."
  version=$("$python" -c 'import platform; print(platform.python_version())') || fail "'$python' does not start: name another one: make demo PYTHON=python3.11."
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "Python 3.11 or newer is needed, and '$python' is $version: name another one: make demo PYTHON=python3.11."
  # Debian keeps the part of Python that makes virtual environments in a package of its own.
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package="python${version%.*}-venv"
    { can_install && install_one_of "$package" python3-venv; } ||
      fail "'$python' cannot make virtual environments: install its venv package (Debian, Ubuntu: sudo apt-get install $package)."
  fi
  # The Python that an older one was made with may be gone (an upgrade of the system), and its links would stay.
  clear=
  [ ! -e "$venv/pyvenv.cfg" ] || clear=--clear
  "$python" -m venv ${clear:+"$clear"} "$venv"
fi

# uv installs the same versions in an eighth of the time; pip alone does where uv cannot be had.
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
if "${pip[@]}" install --quiet uv 2>/dev/null; then
  # Compiled now: else the first run would spend seconds on it.
  install=("$venv/bin/uv" pip install --quiet --compile-bytecode --python "$venv/bin/python")
else
  install=("${pip[@]}" install --quiet)
fi
echo "Installing gobblin-dagster${extra:+ with extra '$extra'} into $venv (pinned versions) ..."
"${install[@]}" --constraint constraints.txt --editable ".${extra:+[$extra]}" || {
  [ "${install[0]}" = "$venv/bin/uv" ] || fail "The packages could not be installed: see pip's words above; most often the network is missing."
  echo "uv could not install; trying pip ..." >&2
  "${pip[@]}" install --quiet --constraint constraints.txt --editable ".${extra:+[$extra]}" ||
    fail "The packages could not be installed: see pip's words above; most often the network is missing."
}

# uv keeps each build of pyspark (1.4 GB) even where a later one has taken its place: what nothing uses any longer goes.
# An installation beside this one holds uv's lock: then the next one clears away.
[ "${install[0]}" != "$venv/bin/uv" ] || UV_LOCK_TIMEOUT=5 "$venv/bin/uv" cache prune --quiet || true
