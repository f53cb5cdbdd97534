"""Guard public functions: wrong arguments, and files that the system refuses, are named by our own errors."""

from __future__ import annotations

import errno
import functools
import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeGuard, TypeVar, Union, get_args, get_origin, get_type_hints

from gobblin_dagster.core.errors import StorageError, UsageError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
_SHOWN = 60
"""Characters of a wrong argument that the error shows."""
_ADVICE = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "give this user the right, or choose another place"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free space there, then call it again"),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP), "correct the path"),
}
"""What to do, by kind of OSError."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a check of its arguments before each call: UsageError names what was expected.

    An OSError of the function becomes a StorageError, with the function, the path and what to do.

    Checks what annotations can say: classes, `|`, literals, and the items of sequences and mappings. A text must be
    valid unicode without NUL, but a path may hold any bytes except NUL.

    Example:
        >>> @checked
        ... def greet(name: str, times: int = 1) -> str:
        ...     return " ".join([f"hello {name}"] * times)
        >>> greet("you", times=2)
        'hello you hello you'
        >>> greet(None)
        Traceback (most recent call last):
        ...
        gobblin_dagster.core.errors.UsageError: greet: `name` must be str, got None.
    """
    signature = inspect.signature(function)
    hints = functools.cache(lambda: get_type_hints(function))  # names of the module may be defined below the function

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python's own error names the function
        for name, value in arguments.items():
            if name in hints() and not _fits(value, hints()[name]):
                raise UsageError(
                    problem=f"{function.__qualname__}: `{name}` must be {signature.parameters[name].annotation}, "
                    f"got {_shown(value)}."
                )
        try:
            return function(*args, **kwargs)
        except OSError as error:
            given = (str(value) for name, value in arguments.items() if _is_path(hints().get(name)))
            raise StorageError(
                operation=f"finish {function.__qualname__} because of",
                path=str(error.filename or next(given, "a file")),
                problem="; ".join(filter(None, (error.strerror or str(error), _ADVICE.get(error.errno or 0)))),
            ) from error

    return call


def checked_methods(cls: type[C]) -> type[C]:
    """Check the arguments of a class's public methods, as `checked` does."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, checked(method))
    return cls


def _fits(value: object, wanted: Any) -> bool:
    """Return True if a value is of an annotated type; also if the annotation is of a kind that is not checked."""
    kind, inner = get_origin(wanted), get_args(wanted)
    if kind in (Union, UnionType):
        is_path = isinstance(value, str) and any(get_origin(each) is os.PathLike for each in inner)
        return "\0" not in str(value) if is_path else any(_fits(value, each) for each in inner)
    if kind is Literal:
        return value in inner
    if kind is os.PathLike:
        path = os.fspath(value) if isinstance(value, os.PathLike) else None
        return isinstance(path, str) and "\0" not in path
    if kind in (Sequence, Collection):
        return _is_collection(value) and all(_fits(each, inner[0]) for each in value)
    if kind is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(each, inner[1]) for key, each in value.items()
        )
    return _is_instance(value, wanted)


def _is_path(wanted: Any) -> bool:
    return any(get_origin(each) is os.PathLike for each in (wanted, *get_args(wanted)))


def _is_instance(value: object, wanted: Any) -> bool:
    if wanted is str:
        return isinstance(value, str) and _is_text(value)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if getattr(wanted, "_is_protocol", False):
        return all(hasattr(value, name) for name in vars(wanted) if not name.startswith("_"))
    return wanted is Any or not isinstance(wanted, type) or isinstance(value, wanted)


def _is_collection(value: object) -> TypeGuard[Collection[object]]:
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({type(value).__name__})"
