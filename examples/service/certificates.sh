#!/usr/bin/env bash
# Makes an authority in the folder tls, and a certificate with its key for each NAME=ADDRESS:
#   ./certificates.sh service=IP:127.0.0.1 south=IP:127.0.0.1
# Everybody who has a certificate of this authority can order jobs: keep ca.key away from the machines.
set -euo pipefail
mkdir -p tls
cd tls
new=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
openssl req -x509 "${new[@]}" -days 365 -subj /CN=gobblin-example -keyout ca.key -out ca.pem 2>/dev/null
for one in "$@"; do
  name=${one%%=*}
  openssl req "${new[@]}" -subj "/CN=$name" -keyout "$name.key" -out "$name.csr" 2>/dev/null
  openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 \
    -extfile <(echo "subjectAltName=${one#*=}") -out "$name.pem" 2>/dev/null
  rm "$name.csr"
done
