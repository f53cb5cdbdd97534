"""Select lists over Arrow batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import duckdb
import pyarrow as pa

from gobblin_dagster.constructs.sql import limits
from gobblin_dagster.constructs.sql.session import (
    MEMORY_LIMIT,
    Session,
    forget_session,
    kept_interrupts,
    thread_session,
)
from gobblin_dagster.constructs.types.columns import HIDDEN_PREFIX, columns_text, convert_error
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.core.secrets import hidden

_HIDDEN_NAME = re.compile(rf'"{HIDDEN_PREFIX}\w*"(, )?|, "{HIDDEN_PREFIX}\w*"$')
_ABOUT_NAMES = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)
"""Errors that speak of the expression's text, not of values."""
_TOO_LARGE = (duckdb.OutOfMemoryException, MemoryError)
T = TypeVar("T")
MAX_TEXT = 200
"""Characters of an expression or of DuckDB's text in a message."""


class SqlSelect:
    """Evaluate a select list on batches of any schema.

    Args:
        select_list: the text between SELECT and FROM.
        construct: kind and name of the construct, for messages.
        context: the job, dataset and branch, for messages.
        shown: the expression that messages show; by default the select list.

    Raises:
        ConvertError: (all methods) the select list does not fit the schema, fails on a row, or exceeds a limit. The
            message has the expression, the columns and DuckDB's text, unless that may hold a secret.
    """

    def __init__(self, select_list: str, construct: str, context: ConstructContext, shown: str | None = None) -> None:
        self._select_list = select_list
        self._shown = select_list if shown is None else shown
        self._construct = construct
        self._context = context
        of = f"dataset {context.dataset_urn!r}" if context.dataset_urn else f"job {context.job!r}"
        self._named = f"{construct} of {of}: {shorten(self._shown)!r}"

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the results for batches of `schema`; evaluates no row."""
        return self._schema(self._select_list, self._shown, schema)

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the result for a batch; its schema is exactly `self.schema(batch.schema)`."""
        return self._result(self._select_list, self._shown, batch)

    def _schema(self, select_list: str, shown: str, schema: pa.Schema) -> pa.Schema:
        return self._evaluate(shown, schema, lambda session: session.prepare(select_list, schema).schema)

    def _result(self, select_list: str, shown: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self._evaluate(
            shown, batch.schema, lambda session: session.prepare(select_list, batch.schema).run(batch)
        )

    def _evaluate(self, shown: str, schema: pa.Schema, evaluate: Callable[[Session], T]) -> T:
        """Return what a statement gives; one that lacks memory that other statements hold gets a session of its own."""
        is_alone = self._session().prepared_statements < 2
        try:
            with self._blame(shown, schema):
                return evaluate(self._session())
        except ConvertError as error:
            if is_alone or not isinstance(error.__cause__, _TOO_LARGE):
                raise
        with self._blame(shown, schema):
            return evaluate(self._session())

    def _session(self) -> Session:
        return thread_session((self._context.base_dir, self._context.job))

    @contextmanager
    def _blame(self, expression: str, schema: pa.Schema) -> Iterator[None]:
        """Run a statement within the limits; turn its failure into a ConvertError that names the expression."""
        session_limits = self._session().limits
        session_limits.expression = self._named
        try:
            with session_limits, kept_interrupts():
                yield
        except (duckdb.Error, pa.ArrowInvalid, pa.ArrowNotImplementedError, MemoryError) as error:
            is_late = isinstance(error, duckdb.InterruptException) and session_limits.was_late
            is_too_large = isinstance(error, _TOO_LARGE)
            if is_too_large or isinstance(error, duckdb.FatalException | duckdb.InternalException):
                forget_session()
            if is_late:
                reason = f"took more than {limits.TIME_LIMIT_S:g} s for one batch, and was ended"
            elif is_too_large:
                most = f"{MEMORY_LIMIT} in tables; {session_limits.most_memory()}"
                reason = (
                    f"needs more memory than one batch may take ({most}): {_reason(error)}. Let the expression make "
                    "less, or lower `execution.block_bytes`, so that a batch has fewer rows"
                )
            elif isinstance(error, _ABOUT_NAMES) or hidden(self._select_list) == self._select_list:
                reason = _reason(error)
            else:  # it may hold what the expression made of a secret, such as `upper('${TOKEN}')`
                kind = _reason(error).partition(":")[0] if isinstance(error, duckdb.Error) else type(error).__name__
                reason = f"{kind}; what it says is left out, as the expression holds a hidden value of the environment"
            failed = self.error(f"{shorten(expression)!r}: {reason}; columns: {columns_text(schema)}")
            is_of_process = is_late or (is_too_large and session_limits.is_outer_lower)
            raise replace(failed, is_of_rows=not is_of_process, is_of_memory=is_too_large) from error

    def error(self, problem: str) -> ConvertError:
        """Return an error that names dataset, branch and construct."""
        return convert_error(problem, self._construct, self._context)


def shorten(text: str) -> str:
    """Return a text on one line, cut to MAX_TEXT characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_TEXT else flat[: MAX_TEXT - 1] + "…"


def _reason(error: Exception) -> str:
    """Return DuckDB's text without the statement that we built around the expression and without our hidden columns."""
    # What DuckDB advises are settings that no job can change.
    text = str(error).split("\n\nLINE ")[0].split("\nPossible solutions:")[0]
    return shorten(_HIDDEN_NAME.sub("", text).removesuffix("\nCandidate bindings: ")).removesuffix(".")
