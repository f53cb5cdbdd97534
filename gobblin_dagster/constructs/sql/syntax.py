"""Option types for SQL: the text is parsed when the job file is checked, so that a syntax error is known before a run.

Names of columns and functions are not checked here: the columns are known only when the first rows are read.
"""

from __future__ import annotations

from typing import Annotated

import duckdb
from pydantic import AfterValidator


def _parse(text: str, statement: str) -> str:
    """Return `text`; raises ValueError if `statement`, which contains it, is not exactly one statement of SQL."""
    try:
        count = len(duckdb.extract_statements(statement))
    except duckdb.Error as error:
        raise ValueError(f"is no SQL: {str(error).split(chr(10))[0]}") from None
    if count != 1:
        raise ValueError("expected one expression of SQL, got several statements")
    return text


def _expression(text: str) -> str:
    return _parse(text, f"SELECT (\n{text}\n)")


def _select_list(text: str) -> str:
    return _parse(text, f"SELECT {text}\nFROM batch")


SqlExpression = Annotated[str, AfterValidator(_expression)]
"""One SQL expression, evaluated per row."""
SqlSelectList = Annotated[str, AfterValidator(_select_list)]
"""A select list: the text between SELECT and FROM."""
