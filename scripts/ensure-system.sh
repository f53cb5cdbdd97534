#!/usr/bin/env bash
# Makes sure that programs of the system are there which tests use: ensure-system.sh [postgresql] [chromium]
# [maven] [default-jdk-headless] [openssh-server] [mariadb-server] [mmdebstrap] [pgbouncer]
# Installs them all in one go where permitted; otherwise says in one sentence what is missing, and ends with exit code 2.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

has_postgresql() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }
has_mariadb-server() { { command -v mariadbd || [ -x /usr/sbin/mariadbd ]; } && command -v mariadb-install-db; } >/dev/null
has_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null
has_maven() { command -v mvn >/dev/null; }
has_default-jdk-headless() { command -v javac >/dev/null; }
has_pgbouncer() { { command -v pgbouncer || [ -x /usr/sbin/pgbouncer ]; } >/dev/null; }
has_mmdebstrap() { command -v mmdebstrap >/dev/null; }
has_openssh-server() { command -v sshd || [ -x /usr/sbin/sshd ]; } >/dev/null

absent() { # absent PROGRAM...: the ones that are not there
  local program
  for program in "$@"; do "has_$program" || echo "$program"; done
}

mapfile -t missing < <(absent "$@")
[ "${#missing[@]}" -gt 0 ] || exit 0
if can_install; then
  install_packages "${missing[@]}" || true # what is missing still is said below
  mapfile -t missing < <(absent "${missing[@]}")
  [ "${#missing[@]}" -gt 0 ] || exit 0
fi
for program in "${missing[@]}"; do echo "$program is missing for the tests that need it: sudo apt-get install $program." >&2; done
exit 2
