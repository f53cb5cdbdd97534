#!/usr/bin/env bash
# Starts the service and two workers, posts one flow with two destinations, follows it to its end, and ends all:
#   SHOP_DATABASE=postgresql://USER:PASSWORD@127.0.0.1/shop ./run.sh
# The broker answers at 127.0.0.1:9092 and has the topics west-orders and west-reports; the README says more.
set -euo pipefail
cd "$(dirname "$0")"
: "${SHOP_DATABASE:?is the URL of the PostgreSQL database that gets the table orders}"
export SHOP_DATABASE
[ -e tls/ca.pem ] || ./certificates.sh service=IP:127.0.0.1 south=IP:127.0.0.1

started=()
trap 'kill "${started[@]}" 2>/dev/null && wait "${started[@]}" || true' EXIT
gobblin -C service serve >service.out 2>&1 &
started+=($!)
gobblin -C west worker --executor west >west.out 2>&1 &
started+=($!)
gobblin -C south worker --executor south >south.out 2>&1 &
started+=($!)

wait_for() { # wait_for PID FILE WORDS: until the words stand in the file; if the process ends before, so does this script
  until grep -q "$3" "$2"; do
    kill -0 "$1" 2>/dev/null || { cat "$2" >&2; exit 1; }
    sleep 0.5
  done
}
wait_for "${started[0]}" service.out 'answers at'
wait_for "${started[1]}" west.out 'takes jobs of west'
wait_for "${started[2]}" south.out 'takes jobs of south'

gobblin -C service topology show
gobblin -C service flow show shop/orders >/dev/null 2>&1 ||
  gobblin -C service flow create shop/orders --from landing --to shop --to second-lake --schedule '0 0 3 * * ?'
gobblin -C service flow run shop/orders
gobblin -C service flow datasets shop/orders
find second-lake -name '*.parquet'
