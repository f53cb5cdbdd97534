"""Arguments of public functions are checked by their annotations."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Protocol

import pytest

from gobblin_dagster.core.errors import StorageError, UsageError
from gobblin_dagster.core.utils.arguments import checked, checked_methods


class Reads(Protocol):
    """Has what the check asks a protocol's implementation for."""

    def read(self) -> str:
        """Return something."""


@checked
def public(
    path: str | PathLike[str] = ".",
    *,
    name: str = "",
    names: str | Sequence[str] = (),
    several: Collection[str] = (),
    number: int = 0,
    by_name: Mapping[str, int] | None = None,
    color: Literal["red", "blue"] = "red",
    reader: Reads | None = None,
    anything: Any = None,
    **others: float,
) -> str:
    """Return what `path` is."""
    return str(path)


class BytesPath:
    """A path that is no text."""

    def __fspath__(self) -> bytes:
        return b"x"


@pytest.mark.parametrize(
    "given",
    [
        {"path": Path("x")},
        {"path": "caf\udce9"},  # a path that is not UTF-8
        {"name": "größe"},
        {"names": "a"},
        {"names": ["a"]},
        {"names": {"a"}},
        {"several": ("a", "b")},
        {"number": -1},
        {"by_name": {"a": 1}},
        {"by_name": None},
        {"color": "blue"},
        {"reader": Path(__file__).open},
        {"anything": object()},
    ],
    ids=lambda given: next(iter(given)),  # without the address of an object: each worker collects the same names
)
def test_argument_of_its_type_passes(given: dict[str, Any]) -> None:
    if "reader" in given:
        with given["reader"]() as file:
            assert public(reader=file) == "."
        return
    assert public(**given) == str(given.get("path", "."))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", None),
        ("path", 5),
        ("path", b"x"),
        ("path", "a\0b"),
        ("path", BytesPath()),
        ("path", PurePosixPath("a\0b")),
        ("name", None),
        ("name", "\udcff"),
        ("name", "a\0b"),
        ("names", None),
        ("names", [None]),
        ("names", {}),
        ("names", b"ab"),
        ("several", "ab"),
        ("number", True),
        ("number", "1"),
        ("by_name", {"a": "b"}),
        ("by_name", {1: 1}),
        ("by_name", [("a", 1)]),
        ("color", "green"),
        ("reader", 5),
    ],
)
def test_argument_of_another_type_is_named_with_what_was_expected(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"public: `{name}` must be .*, got "):
        public(**{name: value})


def test_error_shows_the_beginning_of_a_long_value() -> None:
    with pytest.raises(UsageError) as caught:
        public(number="x" * 10_000)  # type: ignore[arg-type]  # the wrong type is what is tested
    assert len(str(caught.value)) < 200
    assert str(caught.value).endswith("xxx... (str).")


def test_public_methods_of_a_class_are_checked() -> None:
    @checked_methods
    class Door:
        """Opens."""

        def open(self, times: int) -> int:
            """Return how often."""
            return self._open(str(times))

        def _open(self, times: Any) -> int:
            return int(times)

    assert Door().open(2) == 2
    with pytest.raises(UsageError, match="`times` must be int, got '2'"):
        Door().open("2")  # type: ignore[arg-type]  # the wrong type is what is tested
    assert Door.open.__doc__ == "Return how often."


def test_system_error_of_a_file_becomes_ours_with_function_path_and_advice(tmp_path: Path) -> None:
    @checked
    def load(where: str | PathLike[str], code: int = 0) -> str:
        if code:
            raise OSError(code, os.strerror(code))
        return Path(where).read_text()

    with pytest.raises(StorageError) as caught:
        load(tmp_path / "gone")
    assert str(caught.value).endswith(f"load because of {tmp_path}/gone: No such file or directory; correct the path.")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    # An error of a write names no file: the argument does.
    with pytest.raises(StorageError, match=f"{tmp_path}/full: No space left on device; free space there"):
        load(tmp_path / "full", errno.ENOSPC)
    with pytest.raises(StorageError, match=r"because of a relative name: Input/output error\.$"):
        load("a relative name", errno.EIO)


def test_missing_argument_is_told_with_the_function() -> None:
    @checked
    def greet(name: str) -> str:
        return name

    with pytest.raises(TypeError, match=r"greet\(\) missing 1 required positional argument: 'name'"):
        greet()  # type: ignore[call-arg]  # the wrong call is what is tested
