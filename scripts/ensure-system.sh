#!/usr/bin/env bash
# Makes sure that programs of the system are there which tests use: ensure-system.sh [postgresql] [chromium]
# [maven] [default-jdk-headless] [openssh-server] [mariadb-server]
# Installs them where permitted; otherwise says in one sentence what is missing and goes on, and ends with exit code 2.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

has_postgresql() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }
has_mariadb-server() { command -v mariadbd || [ -x /usr/sbin/mariadbd ]; } >/dev/null
has_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null
has_maven() { command -v mvn >/dev/null; }
has_default-jdk-headless() { command -v javac >/dev/null; }
has_openssh-server() { command -v sshd || [ -x /usr/sbin/sshd ]; } >/dev/null

missing=0
for program in "$@"; do
  "has_$program" && continue
  if can_install && install_one_of "$program" && "has_$program"; then continue; fi
  echo "$program is missing, and the tests that need it will be skipped: sudo apt-get install $program." >&2
  missing=2
done
exit "$missing"
