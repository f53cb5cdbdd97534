"""Column lineage: which columns of the source a published column is made of, as far as the converters tell.

Drops, renames, selections, SQL, and converters that change values in place are followed. Behind any other converter,
such as one of your own, nothing is known, and nothing is claimed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import dagster as dg
import duckdb

from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.spec.job import ConverterSpec

_IN_PLACE = frozenset(
    {"columns", "dedup", "drop", "encrypt", "filter", "hash", "mask", "parse_timestamps", "sample", "schema"}
)
"""Converters that keep the names of columns; some drop columns or rows, or change values."""
_PARSER = "select json_serialize_sql(?)"


def column_lineage(binding: JobBinding, branch: str, columns: Iterable[str]) -> dg.TableColumnLineage | None:
    """Return the lineage of a branch's published columns; None if nothing is known.

    Only for a job with one upstream asset: of several, a column could come from each.
    """
    if len(binding.upstream) != 1:
        return None
    own = next(one for one in binding.job.fork.branches if one.name == branch)
    key, found = binding.upstream[0].key, {}
    for column in columns:
        sources = _sources((*binding.job.converters, *own.converters), column)
        if sources:
            found[column] = [dg.TableColumnDep(key, source) for source in sorted(sources)]
    return dg.TableColumnLineage(found) if found else None


def _sources(converters: Iterable[ConverterSpec], column: str) -> frozenset[str] | None:
    """Return the columns of the source that a column is made of; None if that is unknown."""
    names = frozenset([column])
    for converter in reversed([*converters]):
        found: set[str] = set()
        for name in names:
            before = _before(converter, name)
            if before is None:
                return None
            found |= before
        names = frozenset(found)
    return names


def _before(converter: ConverterSpec, name: str) -> frozenset[str] | None:
    """Return the columns before a converter that make one behind it; None if that is unknown."""
    columns = converter.options.get("columns")
    match converter.type, columns:
        case kind, _ if kind in _IN_PLACE:
            found: Collection[str] | None = [name]
        case "rename", dict():
            found = [next((old for old, new in columns.items() if new == name), name)]
        case "select", dict():
            found = [_first(columns[name])] if name in columns else None
        case "select", list() | tuple():
            found = [_first(path) for path in columns if str(path).rpartition(".")[2] == name] or None
        case "add", dict():
            found = [] if name in columns else [name]
        case "sql", _:
            select = converter.options.get("select")
            found = [name] if select is None else _of_select(str(select), name)
        case _:
            found = None
    return None if found is None else frozenset(found)


def _first(path: object) -> str:
    return str(path).partition(".")[0]


def _of_select(select: str, name: str) -> frozenset[str] | None:
    named, excluded = _parsed(select)
    if name.casefold() in named:
        return named[name.casefold()]
    if excluded is None or name.casefold() in excluded:
        return None
    return frozenset([name])


@cache
def _parsed(select: str) -> tuple[Mapping[str, frozenset[str]], frozenset[str] | None]:
    """Return the columns that each item of a select list uses, and what its `*` leaves out; None if it has no `*`."""
    with duckdb.connect() as connection:
        rows = connection.execute(_PARSER, [f"select {select}"]).fetchall()
    tree = json.loads(rows[0][0])
    named: dict[str, frozenset[str]] = {}
    excluded: frozenset[str] | None = None
    for item in tree["statements"][0]["node"]["select_list"] if not tree["error"] else ():
        if item["class"] == "STAR":
            excluded = frozenset(str(one).casefold() for one in item["exclude_list"])
            named |= {str(one["key"]).casefold(): frozenset(_used(one["value"])) for one in item["replace_list"]}
        elif name := item["alias"] or (item["column_names"][-1] if item["class"] == "COLUMN_REF" else ""):
            named[str(name).casefold()] = frozenset(_used(item))
    return named, excluded


def _used(node: Any) -> Iterator[str]:
    """Yield the columns that an expression uses; of a struct's field, the struct."""
    if isinstance(node, dict):
        if node.get("class") == "COLUMN_REF":
            yield str(node["column_names"][0])
        for part in node.values():
            yield from _used(part)
    elif isinstance(node, list):
        for part in node:
            yield from _used(part)
