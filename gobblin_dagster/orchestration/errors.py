"""Errors as Dagster stores them: it keeps the text of an error, and of each error that led to it.

Our errors hide the values of `${NAME}` in their own text. Errors of drivers, and of classes of yours, do not.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.secrets import hidden


@contextmanager
def without_secrets() -> Iterator[None]:
    """Raise errors so that Dagster stores no value of `${NAME}`; also a decorator.

    An error without such a value passes as it is. One of ours loses the errors that led to it. Of any other one, the
    whole text becomes that of a Failure, with references in place of the values.
    """
    try:
        yield
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        shown = hidden(text)
        if shown == text:
            raise
        if isinstance(error, GobblinDagsterError):
            raise error from None
        if isinstance(error, dg.Failure):
            told = hidden(error.description or "")
            raise dg.Failure(told, metadata=error.metadata, allow_retries=error.allow_retries) from None
        raise dg.Failure(shown) from None
