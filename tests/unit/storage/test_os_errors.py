"""Errors of file systems' libraries become OSErrors, and a retry is told from an end."""

from __future__ import annotations

import errno

import pytest

from gobblin_dagster.storage.os_errors import as_os_error, is_passing, os_errors, raise_if_passing


def ssh_error(*names: str) -> Exception:
    """Return an error of asyncssh by its names alone: the package need not be installed."""
    kind: type[Exception] = Exception
    for name in names:
        module, _, short = name.rpartition(".")
        kind = type(short, (kind,), {"__module__": module})
    return kind("it broke")


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (ssh_error("asyncssh.misc.Error", "asyncssh.misc.ConnectionLost"), errno.ECONNRESET),
        (ssh_error("asyncssh.misc.Error", "asyncssh.sftp.SFTPNoConnection"), errno.ECONNRESET),
        (ssh_error("asyncssh.misc.Error", "asyncssh.sftp.SFTPPermissionDenied"), errno.EIO),
    ],
    ids=["lost", "none", "denied"],
)
def test_error_of_a_library_is_an_os_error_of_that_kind(error: Exception, number: int) -> None:
    with pytest.raises(OSError, match="it broke") as caught, os_errors():
        raise error
    assert caught.value.errno == number
    assert caught.value.__cause__ is error


def test_errors_of_no_file_system_stay_as_they_are() -> None:
    assert as_os_error(ValueError("x")) is None
    with pytest.raises(ZeroDivisionError), os_errors():
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionError("reset"), True),
        (TimeoutError(), True),
        (OSError("When reading: AWS Error SLOW_DOWN during GetObject"), True),
        (FileNotFoundError(errno.ENOENT, "gone"), False),
        (OSError("AWS Error ACCESS_DENIED during GetObject"), False),
    ],
)
def test_only_errors_that_may_pass_are_tried_again(error: OSError, passes: bool) -> None:
    assert is_passing(error) is passes


def test_lack_of_memory_is_not_taken_for_damage_of_the_file() -> None:
    with pytest.raises(MemoryError):
        raise_if_passing(MemoryError())
    raise_if_passing(ValueError("not a Parquet file"))
