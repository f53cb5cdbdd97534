"""Find Java as Spark does (JAVA_HOME first, then PATH), and start it once to check it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.memory import address_space

MIN_JAVA = 17
_REMEDY = (
    f"Install Java {MIN_JAVA} or newer (Debian, Ubuntu: `apt-get install openjdk-{MIN_JAVA}-jre-headless`) "
    "or set JAVA_HOME to one."
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found and started."""

    path: str
    version: str
    major: int


def find_java() -> Java:
    """Return the Java that Spark would use.

    Raises:
        EnvironmentFaultError: there is no Java, it does not start, it is older than `MIN_JAVA`, or Spark could not
            log in there.
    """
    _require_user_name()
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if path is None:
        raise EnvironmentFaultError(problem="Java was not found on PATH.", hint=_REMEDY)
    try:
        # The user's own Java, started as Spark itself would start it.
        command = [path, "-version"]
        with address_space.lifted():
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        where = f"{path} (from JAVA_HOME)" if home else path
        raise EnvironmentFaultError(problem=f"Java at {where} does not start: {error}.", hint=_REMEDY) from error
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', done.stderr + done.stdout)
    if found is None or int(found[2]) < MIN_JAVA:
        what = f"is version {found[1]}" if found else "does not print its version"
        raise EnvironmentFaultError(problem=f"Java at {path} {what}; Spark needs {MIN_JAVA} or newer.", hint=_REMEDY)
    return Java(path, found[1], int(found[2]))


def _require_user_name() -> None:
    """Refuse a user id without a name, as containers have it: Hadoop's login in Spark fails with a page of Java."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError as error:
        raise EnvironmentFaultError(
            problem=f"User id {os.getuid()} has no name on this machine, and Spark does not start without one.",
            hint="Run as a user of /etc/passwd, or add a line for this one to it; with `spark: {start: when_needed}` "
            "in gobblin.yaml small runs start no Spark.",
        ) from error
