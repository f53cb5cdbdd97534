from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_dagster.warm.address import WarmAddress, require_own_peer


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a runtime folder with a short path: sockets allow no long ones."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def test_address_is_private_and_differs_by_project(place: Path, tmp_path: Path) -> None:
    one, other = WarmAddress.of(tmp_path / "a"), WarmAddress.of(tmp_path / "b")
    assert one.path.parent.parent == place
    assert one.path.parent.stat().st_mode & 0o777 == 0o700
    assert one != other
    assert one == WarmAddress.of(tmp_path / "x" / ".." / "a")


def test_open_folder_is_made_private_again(place: Path, tmp_path: Path) -> None:
    WarmAddress.of(tmp_path).path.parent.chmod(0o777)
    assert WarmAddress.of(tmp_path).path.parent.stat().st_mode & 0o777 == 0o700


def test_link_in_place_of_the_folder_is_not_followed(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (place / f"gobblin-dagster-{os.getuid()}").symlink_to(elsewhere)
    assert place not in WarmAddress.of(tmp_path).path.parents
    assert not list(elsewhere.iterdir())


def test_long_runtime_folder_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert long not in WarmAddress.of(tmp_path).path.parents


def test_error_names_each_place(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobblin_dagster.warm.address.MAX_SOCKET_BYTES", 5)
    with pytest.raises(OSError, match=f"{place}.*too long for a socket"):
        WarmAddress.of(tmp_path)


def test_socket_without_a_worker_is_replaced(place: Path, tmp_path: Path) -> None:
    address = WarmAddress.of(tmp_path)
    assert address.connect() is None
    address.listen().close()  # as a killed worker leaves it
    assert address.path.exists()
    assert address.connect() is None
    with address.listen(), address.connect() or socket.socket() as connection:
        require_own_peer(connection)
        assert address.path.stat().st_mode & 0o777 == 0o600


def test_socket_of_another_user_is_refused(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = WarmAddress.of(tmp_path)
    with address.listen():
        monkeypatch.setattr(os, "getuid", lambda: 4711)
        with pytest.raises(PermissionError, match="belongs to user"):
            address.connect()
