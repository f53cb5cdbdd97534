"""Options of the JVM that halve Spark's cold start, above all an archive of the classes that it has loaded.

One JVM writes the archive when it ends, which takes it seconds, under a name of its own. A later start renames it, so
that an incomplete archive is never used.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

SETTLE_S = 10
"""Seconds without a change after which an archive is complete."""
CLAIM_S = 600
"""Seconds in which one JVM alone is to write the archive; if it was killed, the next one does it after them."""
UNUSED_S = 30 * 86_400
"""Seconds without use after which archives are deleted: each Python environment has one of 150 MB."""
_DAY_S = 86_400


def fast_start_options(java: Path, spark: str) -> list[str]:
    """Return the options; they slow down long-running code in the JVM, and our runner runs little there.

    Args:
        java: the program, without links in its path.
        spark: version and place of Spark; each has an archive of its own.
    """
    # Before the memory of classes grows past a bound, 21 MB at first, the JVM searches the whole heap for garbage.
    memory = ["-XX:+UseSerialGC", "-XX:MetaspaceSize=160m"]
    options = ["-XX:TieredStopAtLevel=1", *memory, "-Xshare:auto", "-Xlog:disable", "-Xlog:all=off:stderr"]
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gobblin-dagster"
    except RuntimeError:
        return options  # the user has no home folder
    release = java.parent.parent / "release"
    identity = f"{java}\n{release.read_text() if release.exists() else ''}\n{spark}"
    archive = folder / f"spark-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _adopt_finished(archive)
        if archive.exists():
            _note_use(archive)
            return [*options, f"-XX:SharedArchiveFile={archive}"]
        if not _claim(archive.with_suffix(".claim")):
            return options
        _delete_unused(folder)
        return [*options, f"-XX:ArchiveClassesAtExit={archive.with_suffix(f'.{os.getpid()}.new')}"]
    except OSError:
        return options  # a cache that cannot be written only costs seconds


def _adopt_finished(archive: Path) -> None:
    for candidate in archive.parent.glob(f"{archive.stem}.*.new"):
        if _age_s(candidate) < SETTLE_S:
            continue  # its JVM may still be writing
        if archive.exists():
            candidate.unlink(missing_ok=True)
        else:
            candidate.rename(archive)


def _claim(claim: Path) -> bool:
    """Return whether this process is the one whose JVM writes the archive."""
    if claim.exists() and _age_s(claim) < CLAIM_S:
        return False
    claim.unlink(missing_ok=True)
    try:
        claim.open("x").close()
    except FileExistsError:
        return False
    return True


def _note_use(archive: Path) -> None:
    if _age_s(archive) > _DAY_S:
        os.utime(archive)


def _delete_unused(folder: Path) -> None:
    for file in folder.glob("spark-*"):
        if _age_s(file) > UNUSED_S:
            file.unlink(missing_ok=True)


def _age_s(file: Path) -> float:
    return time.time() - file.stat().st_mtime
