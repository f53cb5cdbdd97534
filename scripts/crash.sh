#!/usr/bin/env bash
# The crash proof: a run is killed in the middle of publishing; the next one finishes and counts every row.
set -euo pipefail
gobblin=$PWD/.venv/bin/gobblin
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$gobblin" init "$folder/demo"
cd "$folder/demo"
echo "+ gobblin run --crash-at commit:2"
code=0
"$gobblin" run --crash-at commit:2 || code=$?
[ "$code" -eq 137 ] || { echo "The run was to be killed (exit code 137), and ended with $code." >&2; exit 1; }
echo "+ gobblin run"
"$gobblin" run
