"""The base of all conformance classes: a test that fails says what its protocol demands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import pytest


class Conformance:
    """Tests of one protocol: an implementer inherits them, in a class whose name begins with `Test`.

    What a subclass gives is data (attributes) or made for each test (fixtures that it overrides); the class of each
    protocol lists both. Each test stands for one sentence: its docstring, or else its name.
    """

    protocol: ClassVar[str]
    """The protocol that is tested, as it is imported."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for name, test in list(vars(cls).items()):
            if name.startswith("test_"):
                setattr(cls, name, _naming_its_demand(test))

    if not TYPE_CHECKING:  # a type checker knows the attributes, and would take a misspelt one for any

        def __getattr__(self, name: str) -> NoReturn:
            """Name an attribute that the subclass did not set; asked for what is not there only."""
            declared = [cls for cls in type(self).__mro__ if name in vars(cls).get("__annotations__", {})]
            if not declared:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise AttributeError(
                f"{type(self).__name__} needs the attribute `{name}`; set it in the class. What it means stands in "
                f"{declared[0].__module__}.{declared[0].__name__}."
            )


def to_override(owner: Conformance, what: str, returns: str) -> NoReturn:
    """Fail because a fixture or a method was not overridden."""
    pytest.fail(f"{type(owner).__name__} needs {what} that returns {returns}; override it.", pytrace=False)


def demand_of(test: Callable[..., None]) -> str:
    """Return the sentence that a test stands for."""
    text = test.__doc__ or test.__name__.removeprefix("test_").replace("_", " ")
    return " ".join(text.split()).rstrip(".") + "."


def _naming_its_demand(test: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(test)
    def tested(self: Conformance, *args: Any, **fixtures: Any) -> None:
        __tracebackhide__ = True
        try:
            test(self, *args, **fixtures)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"{self.protocol} demands: {demand_of(test)}")
            raise

    return tested
