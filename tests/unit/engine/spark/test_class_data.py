"""Which JVM writes the archive of classes, and which archives are used and deleted."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gobblin_dagster.engine.spark.class_data import CLAIM_S, SETTLE_S, UNUSED_S, fast_start_options

JAVA = Path("/opt/java/bin/java")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gobblin-dagster"


def archive_option(java: Path = JAVA) -> tuple[str, Path | None]:
    """Return the name of the option about the archive, and its file."""
    found = [option for option in fast_start_options(java, "4.1.1") if "Archive" in option]
    name, _, file = found[0].partition("=") if found else ("", "", "")
    return name, Path(file) if found else None


def age(file: Path, seconds: float) -> None:
    os.utime(file, (time.time() - seconds,) * 2)


def test_one_of_several_jvms_writes_the_archive_and_later_ones_use_it(cache: Path) -> None:
    name, file = archive_option()
    assert name == "-XX:ArchiveClassesAtExit"
    assert file is not None
    assert archive_option() == ("", None), "another JVM that starts meanwhile spares the seconds"
    file.write_bytes(b"classes")
    assert archive_option() == ("", None), "its JVM may still be writing"
    age(file, SETTLE_S + 1)
    name, used = archive_option()
    assert name == "-XX:SharedArchiveFile"
    assert used is not None
    assert used.read_bytes() == b"classes"
    assert used.parent == cache


def test_another_jvm_writes_it_if_the_first_one_was_killed(cache: Path) -> None:
    archive_option()
    (claim,) = cache.glob("*.claim")
    age(claim, CLAIM_S + 1)
    assert archive_option()[0] == "-XX:ArchiveClassesAtExit"
    assert archive_option() == ("", None)


def test_archives_that_nobody_uses_any_more_are_deleted(cache: Path) -> None:
    cache.mkdir()
    unused, used = cache / "spark-1.jsa", cache / "spark-2.5.new"
    for file in (unused, used):
        file.touch()
    age(unused, UNUSED_S + 1)
    archive_option()
    assert not unused.exists()
    assert used.exists()


def test_cache_that_cannot_be_written_only_costs_time(cache: Path) -> None:
    cache.write_text("a file, not a folder")
    assert archive_option() == ("", None)
    assert "-XX:+UseSerialGC" in fast_start_options(JAVA, "4.1.1")


def test_user_without_a_home_folder_only_waits_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert archive_option() == ("", None)
