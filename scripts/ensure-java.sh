#!/usr/bin/env bash
# Makes sure that Spark finds Java 17 or newer: in JAVA_HOME, else on the PATH, else installed from the distribution.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

java_major() { # the major version of the Java that Spark would take; nothing if there is none
  local java=java said
  [ -z "${JAVA_HOME:-}" ] || java="$JAVA_HOME/bin/java"
  said=$("$java" -version 2>&1) || return 0
  [[ $said =~ \ version\ \"(1\.)?([0-9]+) ]] && echo "${BASH_REMATCH[2]}" || true
}

is_enough() { [ -n "$1" ] && [ "$1" -ge 17 ]; }

found=$(java_major)
is_enough "$found" && exit 0

if [ -n "${JAVA_HOME:-}" ]; then
  fail "Java 17 or newer is needed, but JAVA_HOME=$JAVA_HOME holds ${found:+Java }${found:-no Java}: point it at a newer one or unset it."
fi
remedy="install a Java 17 runtime (Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
can_install || fail "Java 17 or newer is needed, and ${found:+only Java }${found:-none} was found: $remedy."
install_one_of openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless || fail "Java could not be installed: $remedy."
found=$(java_major)
is_enough "$found" || fail "Java 17 or newer is needed, but after installing, java is still ${found:-missing}: $remedy."
