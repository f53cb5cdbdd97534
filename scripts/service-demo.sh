#!/usr/bin/env bash
# The service in one go: start it on real flights, create two flows (files to the lake, the lake to a table), run them,
# look at them, and end it.
#   service-demo.sh [FOLDER]    default: service-demo
set -euo pipefail
gobblin=$PWD/.venv/bin/gobblin
folder=${1:-service-demo}

say() {
  local word words=()
  for word in "$@"; do
    [[ $word =~ [^A-Za-z0-9_./:=,-] ]] && words+=("'$word'") || words+=("$word") # as one types it in a shell
  done
  printf '\n$ gobblin %s\n' "${words[*]}"
  "$gobblin" "$@"
}

[ -e "$folder/gobblin.yaml" ] || "$gobblin" init --service "$folder"
cd "$folder"
: >serve.out # made here: the service's process opens it at its own time, and grep below may come first
"$gobblin" serve >>serve.out 2>&1 &
service=$!
trap 'kill "$service" 2>/dev/null && wait "$service" || true' EXIT
for _ in $(seq 240); do
  grep -q 'answers at' serve.out && break
  kill -0 "$service" 2>/dev/null || { cat serve.out >&2; exit 1; }
  sleep 0.5
done
head -n 1 serve.out
say flow templates
"$gobblin" flow show flights/lake >/dev/null 2>&1 ||
  say flow create flights/lake --template FS:///flights/landing-to-lake.template --set airline=UA --schedule '0 0/5 * ? * *'
say flow run flights/lake
say flow status flights/lake --wait
say flow datasets flights/lake
"$gobblin" flow show flights/table >/dev/null 2>&1 ||
  say flow create flights/table --template FS:///flights/lake-to-table.template --schedule '0 2/5 * ? * *'
say flow run flights/table
say flow list
kill "$service"
wait "$service" || true
trap - EXIT
printf '\nThe service has ended. Start it again: cd %s && gobblin serve\n' "$folder"
