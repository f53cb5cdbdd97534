# Shared by the scripts beside it: one clear sentence instead of a stack trace, and packages of the system where permitted.
#
# Under `set -o pipefail` no answer of a program goes through a pipe to one that stops reading early (`grep -q`, `head -n 1`):
# the first program then dies of the closed pipe, and its answer "yes" counts as "no". Answers are read whole, then looked at.

fail() { # fail SENTENCE: say what is wrong and what to do, and stop
  echo "$*" >&2
  exit 2
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_install() { # whether this user may install packages of a Debian-like system
  command -v apt-get >/dev/null && as_root true 2>/dev/null
}

apt_get() { # apt_get LOG ARGUMENT...: asks nothing, waits for another apt or dpkg at work, tries again after a hiccup of the mirror
  local log=$1 tries=0 waited=0
  shift
  local quietly=(env LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l)
  local options=(-y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o APT::Update::Error-Mode=any
    -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold)
  until as_root "${quietly[@]}" apt-get "${options[@]}" "$@" >"$log" 2>&1 </dev/null; do
    # apt itself waits for the lock of dpkg, yet not for the lock of its lists of packages.
    if [ "$waited" -lt 300 ] && [[ $(<"$log") == *"E: Could not get lock"* ]]; then
      [ "$waited" -gt 0 ] || echo "Another process installs packages; waiting until it ends ..." >&2
      sleep 2
      waited=$((waited + 2))
      continue
    fi
    tries=$((tries + 1))
    [ "$tries" -lt 3 ] || return 1
    # An installation that was cut off must be finished first.
    if [[ $(<"$log") == *"dpkg --configure -a"* ]]; then
      as_root "${quietly[@]}" dpkg --force-confdef --force-confold --configure -a >"$log" 2>&1 </dev/null || true
    fi
    sleep "$tries"
  done
}

is_offered() { # is_offered PACKAGE: whether this system has a package of that name to install
  local policy
  policy=$(LC_ALL=C apt-cache policy "$1" 2>/dev/null) || return 1
  [[ $policy == *"Candidate: "[!\(]* ]]
}

without_services() { # without_services COMMAND...: servers that the command installs are not started; tests start their own
  local policy=/usr/sbin/policy-rc.d code=0
  # A policy that the system has already is obeyed. Without rights to write one, servers start as the distribution likes.
  if [ -e "$policy" ] || ! printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null 2>&1; then
    "$@"
    return
  fi
  trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
  as_root chmod 755 "$policy"
  "$@" || code=$?
  as_root rm -f "$policy"
  trap - EXIT
  return "$code"
}

refresh_lists() { # refresh_lists LOG: what the mirrors offer, once a script; why not is told with the first package that lacks
  [ -z "${lists:-}" ] || return 0
  lists=fresh why_stale=
  apt_get "$1" update || why_stale=$(tail -n 3 "$1") # a broken side source must not stop us
}

install_packages() { # install_packages PACKAGE...: those that this system offers, in one go; fails unless all are there
  local log package offered=() code=0
  log=$(mktemp)
  refresh_lists "$log"
  for package in "$@"; do
    if is_offered "$package"; then offered+=("$package"); else code=1; fi
  done
  if [ "$code" -ne 0 ] && [ -n "$why_stale" ]; then
    echo "$why_stale" >&2
    why_stale=
  fi
  if [ "${#offered[@]}" -gt 0 ]; then
    echo "Installing ${offered[*]} (apt-get install) ..." >&2
    if ! without_services apt_get "$log" install --no-install-recommends "${offered[@]}"; then
      tail -n 3 "$log" >&2
      code=1
      # One package that cannot be installed must not keep the others away.
      [ "${#offered[@]}" -eq 1 ] || for package in "${offered[@]}"; do
        without_services apt_get "$log" install --no-install-recommends "$package" || tail -n 3 "$log" >&2
      done
    fi
  fi
  rm -f "$log"
  return "$code"
}

install_one_of() { # install_one_of PACKAGE...: the first that this system offers
  local package
  for package in "$@"; do
    if install_packages "$package"; then return 0; fi
  done
  return 1
}
