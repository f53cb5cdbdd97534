"""Jars of servers that tests start: fetched once by Maven, kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_FETCH_S = 600
_NOTHING_ELSE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def jars(name: str, artifacts: Sequence[str], *, alone: bool = False) -> Path | None:
    """Return a folder with the jars of `group:artifact:version[:type[:classifier]]` and, unless `alone`, all that they
    need.

    None where they are not there and Maven is not there either, or cannot fetch them.
    """
    key = hashlib.sha256("\n".join(artifacts).encode()).hexdigest()[:12]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gobblin-dagster" / "jars"
    folder = home / f"{name}-{key}"
    maven = shutil.which("mvn")
    if folder.is_dir():
        return folder
    if maven is None:
        return None
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix=f".{name}-") as work:
        (Path(work) / "pom.xml").write_text(_pom(name, artifacts, _NOTHING_ELSE if alone else ""), encoding="utf-8")
        command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"]
        done = subprocess.run(command, cwd=work, capture_output=True, check=False, timeout=_FETCH_S)
        if done.returncode != 0:
            return None
        # Renamed when whole: another test run may fetch the same at this moment.
        try:
            (Path(work) / "libs").rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder


def _pom(name: str, artifacts: Sequence[str], more: str) -> str:
    """Return a project that depends on the artifacts and holds nothing."""
    tags = ("groupId", "artifactId", "version", "type", "classifier")
    dependencies = "".join(
        "<dependency>"
        + "".join(f"<{tag}>{value}</{tag}>" for tag, value in zip(tags, artifact.split(":"), strict=False))
        + f"{more}</dependency>"
        for artifact in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>tests</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
