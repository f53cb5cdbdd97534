# Shared by the scripts beside it: one clear sentence instead of a stack trace, and packages of the system where permitted.

fail() { # fail SENTENCE: say what is wrong and what to do, and stop
  echo "$*" >&2
  exit 2
}

can_install() { # whether this user may install packages of a Debian-like system
  command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_one_of() { # install_one_of PACKAGE...: the first that this system offers
  local log package
  log=$(mktemp)
  as_root apt-get update >"$log" 2>&1 || true # a broken side source must not stop us; the install below tells
  for package in "$@"; do
    apt-cache policy "$package" 2>/dev/null | grep -q 'Candidate: [^(]' || continue
    echo "Installing $package (apt-get install) ..." >&2
    if as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package" >"$log" 2>&1; then
      rm -f "$log"
      return 0
    fi
    tail -n 3 "$log" >&2
  done
  rm -f "$log"
  return 1
}
