"""Say which files, tables and topics the source `spark` would read, by its options alone; Spark is not asked.

Queries and stored tables of a catalog are left out: what they read is known to Spark only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import sqlalchemy as sa

from gobblin_dagster.constructs.clients.kafka import topic_place
from gobblin_dagster.constructs.clients.sql import parse_url, table_place
from gobblin_dagster.constructs.sources.spark.options import DATASET, GLOBS, ReadOptions
from gobblin_dagster.core.allow import names_below
from gobblin_dagster.core.same_place import is_same_place

_NAME = r"""("[^"]+"|`[^`]+`|[^\s"`.(),;]+)"""
_TABLE = re.compile(rf"\s*(?:{_NAME}\s*\.\s*)?{_NAME}\s*")
"""What `dbtable` is if it is no subquery."""
_CHOICE = re.compile(r"\{([^{}]*)\}")
_MOST_PATHS = 1_000
"""Paths looked at of one with choices in braces."""


def would_load(read: ReadOptions, place: str, base_dir: str, dataset: str) -> bool:
    """Return whether Spark would read a file, table or topic; it need not exist.

    Args:
        read: what is read.
        place: absolute path or URL of a file, or a table or topic as `PublisherTraits.places` has it.
        base_dir: folder that relative paths begin at.
        dataset: name in place of `{dataset}`, but in paths, in which any name may stand.
    """
    options = texts_of(read, dataset)
    if (table := jdbc_table(read, base_dir, dataset)) is not None:
        return is_same_place(table_place(*table), place)
    if read.format.lower() == "kafka":
        topic = place.rpartition("/")[2]
        brokers = topic_place(options.get("kafka.bootstrap.servers", ""), topic)
        return is_same_place(brokers, place) and topic in _topics(options, topic)
    path = read.path.replace(DATASET, "*") or options.get("path", "")
    is_recursive = options.get("recursivefilelookup", "").lower() == "true"
    return any(_is_below(place, one, base_dir, is_recursive) for one in islice(_choices(path), _MOST_PATHS))


def jdbc_table(read: ReadOptions, base_dir: str, dataset: str) -> tuple[sa.URL, str] | None:
    """Return the database, with user and password, and the table that Spark reads by JDBC; None if it reads none."""
    options = texts_of(read, dataset)
    found = _TABLE.fullmatch(options.get("dbtable", ""))
    if read.format.lower() != "jdbc" or found is None:
        return None
    text = options.get("url", "").removeprefix("jdbc:")
    if text.startswith("sqlite:"):
        text = f"sqlite:///{text.removeprefix('sqlite:')}"
    with suppress(ValueError):  # Spark says so
        url = parse_url(text, base_dir)
        schema = url.query.get("currentSchema", "")
        names = [_folded(name, url) for name in found.groups(schema) if name and isinstance(name, str)]
        query = {name: url.query[name] for name in ("user", "password") if name in url.query}
        login = {name: str(query.get(name) or options.get(name) or "") for name in ("user", "password")}
        url = url.set(username=login["user"] or None, password=login["password"] or None, query={})
        return url, ".".join(names)
    return None


def texts_of(read: ReadOptions, dataset: str) -> Mapping[str, str]:
    """Return the options as texts, by name in small letters, as Spark compares them."""
    return {name.lower(): str(value).replace(DATASET, dataset) for name, value in read.options.items()}


def _folded(name: str, url: sa.URL) -> str:
    """Return a name as the database has it: PostgreSQL makes letters small that are not in quotes."""
    if name[0] in '"`':
        return name[1:-1]
    return name.lower() if url.get_backend_name() == "postgresql" else name


def _topics(options: Mapping[str, str], topic: str) -> Iterator[str]:
    """Yield the topics that are subscribed to, and a topic that fits the pattern."""
    yield from (one.strip() for one in options.get("subscribe", "").split(","))
    with suppress(ValueError):  # Spark says so
        assigned: Any = json.loads(options.get("assign", "{}"))
        yield from assigned
    with suppress(re.error):  # one that only Java understands
        if re.fullmatch(options.get("subscribepattern", ""), topic):
            yield topic


def _choices(path: str) -> Iterator[str]:
    """Yield a path for each choice in braces, which Hadoop takes for globs."""
    found = _CHOICE.search(path)
    if found is None:
        yield path
        return
    for choice in found[1].split(","):
        yield from _choices(f"{path[: found.start()]}{choice}{path[found.end() :]}")


def _is_below(file: str, path: str, base_dir: str, is_recursive: bool) -> bool:
    """Return whether Spark reads a file by a path: that of a folder, or of its partition folders (`day=1`)."""
    parts = path.split("/")
    fixed = next((number for number, part in enumerate(parts) if GLOBS & set(part)), len(parts))
    root = "/".join(parts[:fixed]) or ("/" if fixed else ".")
    names = names_below(file, root, base_dir) if path else None
    globs = [part for part in parts[fixed:] if part]
    if names is None or not all(map(fnmatchcase, names, globs)) or len(names) < len(globs):
        return False
    return is_recursive or all("=" in folder for folder in names[len(globs) : -1])
