"""Write a job for a list of a REST API: look at its first page, and tell records, types and paging."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pydantic import ValidationError

from gobblin_dagster.constructs.clients.http import Answer, HttpClient, HttpOptions
from gobblin_dagster.constructs.sources.rest.paging import dig
from gobblin_dagster.constructs.types.inference import ColumnGuess
from gobblin_dagster.constructs.types.json_shapes import JSON, RecordShape
from gobblin_dagster.core.errors import GobblinDagsterError, UsageError
from gobblin_dagster.core.secrets import is_secret_name, remember
from gobblin_dagster.core.utils.duplicates import repeated
from gobblin_dagster.demo.own_data import FoundJob, job_body, name_of
from gobblin_dagster.spec.env import expand

_URLS = ("next", "next_url", "nextUrl", "next_page_url", "links.next", "paging.next", "meta.next", "@odata.nextLink")
"""Places at which APIs put the URL of the next page."""
_CURSORS = {
    "next_cursor": "cursor",
    "nextCursor": "cursor",
    "meta.next_cursor": "cursor",
    "response_metadata.next_cursor": "cursor",
    "next_page_token": "page_token",
    "nextPageToken": "pageToken",
}
"""Places at which APIs put the cursor of the next page, with the parameter that takes it."""
_LEVELS = 3
"""Levels of objects in which a list is looked for."""


def job_of_list(written: str, namespace: str, headers_env: Mapping[str, str]) -> FoundJob:
    """Return a job that reads a list of JSON objects from a REST API whole, with the types of its first answer.

    Args:
        written: URL of the list; parameters may hold references `${NAME}` to the environment.
        namespace: namespace of the published table.
        headers_env: variables with secrets by name of the header.

    Raises:
        UsageError: the URL cannot be read, holds a secret, or its answer holds no list of objects.
    """
    base, path, asked, params = _parted(written)
    table = name_of(path.rstrip("/").rpartition("/")[2] or urlsplit(base).hostname or "")
    answer = _first_page(base, path, asked, headers_env)
    lists = dict(_lists(answer.body, "", _LEVELS))
    if not lists:
        raise UsageError(
            problem=f"The answer of {base}{path} holds no list of objects.",
            hint="Name the URL of a list, with at least one record.",
        )
    records, rows = max(lists.items(), key=lambda pair: len(pair[1]))
    paging = _paging(answer)
    source: dict[str, Any] = {
        "type": "rest",
        "url": base,
        "datasets": {table: path},
        **({"params": params} if params else {}),
        **({"headers_env": dict(headers_env)} if headers_env else {}),
        **({"records": records} if records else {}),
        **({"paging": paging} if paging else {}),
        "columns": _column_types(rows),
    }
    body = job_body(namespace, source, table)
    body["extract"]["type"] = "snapshot_only"
    remarks = [
        f"{len(rows)} record(s) were looked at; each run reads the whole list and replaces what was published.",
        "`json` columns hold objects as text; {name: type} and [type] in their place make columns of their fields.",
        "The paging was told by the first answer." if paging else "Add `paging` if the list has pages.",
        "Add a `cursor` to read only what is new: docs/reference/sources-rest.md.",
    ]
    return FoundJob(namespace, body, remarks)


def _parted(written: str) -> tuple[str, str, dict[str, str], dict[str, str]]:
    """Return base URL, path, and the parameters twice: with their values, and as written."""
    place, _, query = written.partition("#")[0].partition("?")
    parts = urlsplit(place)
    if "@" in parts.netloc:
        raise UsageError(
            problem="The URL holds a user or a password, which a job file must not.",
            hint="`--header Authorization=API_TOKEN` sends the content of that variable.",
        )
    above, _, last = parts.path.rstrip("/").rpartition("/")
    # Many servers answer a path without its last `/` by a redirect.
    end = "/" if last and parts.path.endswith("/") else ""
    pairs = parse_qsl(query, keep_blank_values=True)
    if twice := repeated([name for name, _ in pairs]):
        raise UsageError(
            problem=f"The parameter {twice[0]!r} stands in the URL more than once; `params` hold one value of each.",
            hint="Leave it out here, and write the whole query behind the path in `datasets` of the job file.",
        )
    params = dict(pairs)
    for name, value in params.items():
        if is_secret_name(name) and "${" not in value:
            raise UsageError(
                problem=f"The parameter {name!r} holds a secret, which a job file must not.",
                hint=f"Put it into a variable of the environment: `{name}=${{API_KEY}}` in quotes.",
            )
    asked = {}
    for name, value in params.items():
        expanded = expand(value, os.environ)
        if expanded.problems:
            raise UsageError(problem=f"Parameter {name!r}: {expanded.problems[0]}.")
        remember({secret: reference for reference, secret in expanded.values})
        asked[name] = expanded.text
    return f"{parts.scheme}://{parts.netloc}{above}", f"/{last}{end}", asked, params


def _first_page(base: str, path: str, params: Mapping[str, str], headers_env: Mapping[str, str]) -> Answer:
    try:
        options = HttpOptions(url=base, params=dict(params), headers_env=dict(headers_env), retries=1)
        client = HttpClient(options, "")
        try:
            return client.get(path, {})
        finally:
            client.close()
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
    except GobblinDagsterError as error:
        problem = str(error)
    raise UsageError(
        problem=f"{base}{path} cannot be read as JSON: {problem}",
        hint="Try it with curl first; `--header Authorization=API_TOKEN` sends the content of that variable.",
    )


def _lists(body: Any, place: str, levels: int) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
    """Yield each list of objects in an answer, by its dotted path."""
    if isinstance(body, list) and body and isinstance(body[0], dict):
        yield place, [one for one in body if isinstance(one, dict)]
    elif isinstance(body, dict) and levels:
        for name, inner in body.items():
            yield from _lists(inner, f"{place}.{name}".lstrip("."), levels - 1)


def _paging(answer: Answer) -> dict[str, str]:
    """Return how the answer leads to the next page; empty if it does not say."""
    if answer.next_link:
        return {"type": "link"}
    for place in _URLS:
        found = dig(answer.body, place)
        if isinstance(found, str) and found.startswith(("http://", "https://", "/", "?")):
            return {"type": "next_url", "next": place}
    for place, param in _CURSORS.items():
        if isinstance(dig(answer.body, place), str | int) and dig(answer.body, place):
            return {"type": "cursor", "param": param, "next": place}
    return {}


def _column_types(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a shape for each field: that of its values; texts may be instants, objects are `json`."""
    shape = RecordShape()
    for row in rows:
        shape.look(row)
    types: dict[str, Any] = {}
    for name, found in shape.shapes().items():
        types[name] = found if isinstance(found, str) or _is_plain_list(found) else JSON
        if found == "string" and _are_instants([row[name] for row in rows if row.get(name) is not None]):
            types[name] = "timestamp"
    return types


def _is_plain_list(shape: Any) -> bool:
    return isinstance(shape, list) and isinstance(shape[0], str)


def _are_instants(texts: Sequence[str]) -> bool:
    guess = ColumnGuess()
    guess.look(pa.array(texts, pa.string()))
    return guess.type_name == "timestamp"
