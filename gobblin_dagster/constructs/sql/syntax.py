"""Option types for SQL: the text is parsed when the job file is checked, so that a syntax error is known before a run.

Window functions are refused here: DuckDB would compute them over one batch of rows, and where a batch ends is nobody's
choice. Names of columns and functions are not checked here: the columns are known only when the first rows are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any

import duckdb
from pydantic import AfterValidator

from gobblin_dagster.constructs.sql.session import kept_interrupts

_OVER = re.compile(r"\bover\b", re.IGNORECASE)


@kept_interrupts()
def _parse(text: str, statement: str) -> str:
    """Return `text`; raises ValueError if `statement`, which contains it, is not exactly one statement of SQL."""
    try:
        count = len(duckdb.extract_statements(statement))
    except duckdb.Error as error:
        raise ValueError(f"is no SQL: {str(error).split(chr(10))[0]}") from None
    if count != 1:
        raise ValueError("expected one expression of SQL, got several statements")
    # Seldom asked: a connection takes longer than all else here.
    if _OVER.search(text) and (windows := sorted(set(_windows(_tree(statement))))):
        raise ValueError(
            f"a window function ({', '.join(windows)}) needs all rows, and SQL here sees one batch of them at a time; "
            "publish the rows, and compute it over the table"
        )
    return text


def _tree(statement: str) -> Any:
    with duckdb.connect(":memory:") as connection:
        [(text,)] = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()
    return json.loads(text)


def _windows(node: Any) -> Iterator[str]:
    """Yield the names of window functions over the rows of a batch; a subquery has its own rows, such as a list's."""
    if isinstance(node, list):
        for one in node:
            yield from _windows(one)
    elif isinstance(node, dict) and node.get("class") != "SUBQUERY":
        if node.get("class") == "WINDOW":
            yield str(node["function_name"])
        for one in node.values():
            yield from _windows(one)


def _expression(text: str) -> str:
    return _parse(text, f"SELECT (\n{text}\n)")


def _select_list(text: str) -> str:
    return _parse(text, f"SELECT {text}\nFROM batch")


SqlExpression = Annotated[str, AfterValidator(_expression)]
"""One SQL expression, evaluated per row."""
SqlSelectList = Annotated[str, AfterValidator(_select_list)]
"""A select list: the text between SELECT and FROM."""
