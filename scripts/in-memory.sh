#!/usr/bin/env bash
# Runs a command with its temporary files in memory where there is room: tests write thousands of small synced files.
set -euo pipefail
room_kib=$((6 * 1024 * 1024))

free_kib=$(df --output=avail /dev/shm 2>/dev/null | tail -n 1 || true)
[ -w /dev/shm ] && [ "${free_kib:-0}" -ge "$room_kib" ] || exec "$@"
folder=$(mktemp -d /dev/shm/gobblin-tests.XXXXXX)
trap 'rm -rf "$folder"' EXIT
chmod 1777 "$folder" # as the usual one: servers that refuse to be root write there too
TMPDIR="$folder" "$@"
