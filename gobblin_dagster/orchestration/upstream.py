"""What a job reads from, as external assets of Dagster: folders, tables, topics and APIs, so that lineage begins there.

Only names that stand in the job file are known: no source is asked. Passwords in addresses are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import dagster as dg

from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.spec.job import JobSpec


def upstream_specs(job: JobSpec) -> list[dg.AssetSpec]:
    """Return the external assets that a job reads from, in the group of the job; empty if its file names none."""
    find = _FINDERS.get(job.source.type)
    found = {spec.key: spec for spec in find(job.source.options)} if find else {}
    # Several groups would be folded on Dagster's page of the lineage.
    group, text = job.asset.group or job.job, f"What job {job.job} reads, with source {job.source.type}"
    return [spec.replace_attributes(group_name=group, description=text) for spec in found.values()]


def _files(options: Mapping[str, Any]) -> Iterator[dg.AssetSpec]:
    # Up to the first folder with a placeholder.
    folder = re.split(r"[^/]*[{*]", str(options.get("path", "")))[0].rstrip("/")
    form = options.get("format")
    kind = form.get("type") if isinstance(form, Mapping) else form
    if folder:
        scheme, parts = _address(folder)
        yield _spec([scheme or "files", *parts], {"file", str(kind)}, {"dagster/uri": _without_secrets(folder)})


def _query(options: Mapping[str, Any]) -> Iterator[dg.AssetSpec]:
    scheme, parts = _address(str(options.get("url", "")))
    kind = scheme.partition("+")[0]
    database = parts[-1:] or ["database"]
    tables = [str(table) for table in options.get("tables", ())]
    for table in tables or [""]:
        name = ".".join([*database, table]) if table else database[0]
        path = [kind, *database, *(table.split(".") if table else ())]
        yield _spec(path, {kind, "table"}, {"dagster/table_name": name} if table else {})


def _kafka(options: Mapping[str, Any]) -> Iterator[dg.AssetSpec]:
    for topic in options.get("topics", ()):
        if re.fullmatch(r"[A-Za-z0-9_-]+(?:(?:\\)?\.[A-Za-z0-9_-]+)*", str(topic)):  # a name, and no pattern
            yield _spec(["kafka", str(topic).replace("\\", "")], {"kafka"}, {})


def _rest(options: Mapping[str, Any]) -> Iterator[dg.AssetSpec]:
    url = str(options.get("url", ""))
    host = urlsplit(url).hostname
    if host:
        yield _spec(["api", host], {"api"}, {"dagster/uri": _without_secrets(url)})


def _spark(options: Mapping[str, Any]) -> Iterator[dg.AssetSpec]:
    if table := str(options.get("table", "")):
        yield _spec(["spark", *table.split(".")], {"spark", "table"}, {"dagster/table_name": table})
    elif options.get("path"):
        yield from _files(options)


_FINDERS = {"files": _files, "query": _query, "kafka": _kafka, "rest": _rest, "spark": _spark}


def _spec(path: Sequence[str], kinds: set[str], metadata: Mapping[str, Any]) -> dg.AssetSpec:
    parts = [re.sub(r"[^A-Za-z0-9_.-]+", "_", part) for part in path]
    named = {kind for kind in kinds if kind.isidentifier()}
    return dg.AssetSpec([part for part in parts if part], kinds=named, metadata=metadata)


def _address(text: str) -> tuple[str, list[str]]:
    """Return scheme, and host with the parts of the path, of a URL or a path; without user, password and port."""
    parts = urlsplit(text)
    if not parts.scheme or "://" not in text:
        return "", [part for part in text.split("/") if part not in ("", ".", "..")]
    return parts.scheme, [part for part in (parts.hostname or "", *parts.path.split("/")) if part]


def _without_secrets(text: str) -> str:
    """Return a path or URL without user, password, query, and values of `${NAME}`."""
    scheme, separator, rest = hidden(text).partition("://")
    if not separator:
        return scheme
    host, slash, path = re.split("[?#]", rest)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
