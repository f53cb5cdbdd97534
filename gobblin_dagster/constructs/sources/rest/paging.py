"""Paging: the ways in which an API hands out a long list in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from gobblin_dagster.constructs.clients.http import Answer, HttpClient
from gobblin_dagster.core.errors import ExtractError
from gobblin_dagster.spec.job import SpecModel


class NoPaging(SpecModel):
    """One answer holds everything."""

    type: Literal["none"] = "none"


class PageNumberPaging(SpecModel):
    """Pages by number, until one is empty: a short page is not the last where a server caps their size."""

    type: Literal["page"]
    param: str = "page"
    """Query parameter of the number."""
    start: int = 1
    """Number of the first page."""


class OffsetPaging(SpecModel):
    """Pages by the number of records before them, until one is empty."""

    type: Literal["offset"]
    param: str = "offset"
    """Query parameter of the offset."""


class CursorPaging(SpecModel):
    """Each answer holds the cursor of the next one, until there is none."""

    type: Literal["cursor"]
    param: str = "cursor"
    """Query parameter of the cursor."""
    next: str = "next_cursor"
    """Place of the cursor in the answer, with dots: `meta.next`."""
    next_may_lack: bool = False
    """Whether the last answer leaves the place out, instead of a null or nothing in it. Default: that fails the work unit, as
    a place that is mistyped would read one page only."""


class LinkPaging(SpecModel):
    """Each answer has a header `Link` with `rel="next"`, until there is none."""

    type: Literal["link"]


Paging: TypeAlias = Annotated[
    NoPaging | PageNumberPaging | OffsetPaging | CursorPaging | LinkPaging, Field(discriminator="type")
]


def read_pages(
    client: HttpClient,
    dataset_urn: str,
    path: str,
    params: Mapping[str, str],
    paging: Paging,
    records_path: str,
    *,
    may_lack: bool,
) -> Iterator[tuple[list[Any], int]]:
    """Yield the records of each page with the answer's size in bytes; raises as `HttpClient.get`.

    A server that hands out the same page or cursor again would be asked for ever: it fails with ExtractError. So does an
    answer without anything at `records_path`, unless it `may_lack` it: a place that is mistyped would read as no records;
    and one without the place of the next cursor, unless that `next_may_lack`.
    """
    target, asked, seen, taken = path, dict(params), set[str](), 0
    if isinstance(paging, PageNumberPaging):
        asked[paging.param] = str(paging.start)
    before: str | None = None
    while True:
        answer = client.get(target, asked)
        records = _records(answer, dataset_urn, path, records_path, may_lack)
        if records:
            yield records, answer.size_bytes
        taken += len(records)
        match paging:
            case NoPaging():
                return
            case PageNumberPaging() | OffsetPaging():
                if not records:
                    return
                content = json.dumps(records, sort_keys=True)
                if content == before:
                    raise _loop(dataset_urn, path, f"does not heed the parameter {paging.param!r}: it repeats a page")
                before = content
                number = int(asked.get(paging.param, 0)) + 1
                asked[paging.param] = str(number if isinstance(paging, PageNumberPaging) else taken)
            case CursorPaging() | LinkPaging():
                following = _following(answer, dataset_urn, path, paging)
                if following is None:
                    return
                if following in seen:
                    raise _loop(dataset_urn, path, "leads back to a page that was read")
                seen.add(following)
                if isinstance(paging, CursorPaging):
                    asked[paging.param] = following
                else:
                    target, asked = following, {}


def _records(answer: Answer, dataset_urn: str, path: str, records_path: str, may_lack: bool) -> list[Any]:
    records = dig(answer.body, records_path)
    if records is None and (may_lack or _is_null(answer.body, records_path)):
        return []
    if not isinstance(records, list):
        got = "nothing" if records is None else type(records).__name__
        problem = f"expected a list at {records_path or 'the top'!r}, got {got}."
        if records is None:
            problem += (
                f" The answer holds {_contents(answer)}. Mend `records`; a server that leaves empty lists out needs "
                "`records_may_lack: true`."
            )
        elif not records_path and isinstance(records, dict):
            problem += f" The answer holds {_contents(answer)}. Say in `records` where the list is."
        raise ExtractError(dataset_urn=dataset_urn, file=path, problem=problem)
    return records


def _contents(answer: Answer) -> str:
    names = ", ".join(map(str, answer.body)) if isinstance(answer.body, dict) else type(answer.body).__name__
    return names[:200]


def _is_null(body: Any, path: str) -> bool:
    """Tell whether there is a null at a dotted path, not just nothing."""
    above, _, name = path.rpartition(".")
    parent = dig(body, above)
    return not path or (isinstance(parent, dict) and name in parent)


def _following(answer: Answer, dataset_urn: str, path: str, paging: CursorPaging | LinkPaging) -> str | None:
    """Return what leads to the next page; None after the last one."""
    if isinstance(paging, LinkPaging):
        return answer.next_link
    cursor = dig(answer.body, paging.next)
    if cursor is None and not (paging.next_may_lack or _is_null(answer.body, paging.next)):
        problem = (
            f"expected the next cursor at {paging.next!r}, or null there, got nothing. The answer holds "
            f"{_contents(answer)}. Mend `paging.next`; a server that leaves it out on the last page needs "
            "`next_may_lack: true`."
        )
        raise ExtractError(dataset_urn=dataset_urn, file=path, problem=problem)
    if isinstance(cursor, dict | list) or cursor is True:
        problem = f"expected the next cursor at {paging.next!r}, got {type(cursor).__name__}. Mend `paging.next`."
        raise ExtractError(dataset_urn=dataset_urn, file=path, problem=problem)
    return None if cursor in (None, "", False) else str(cursor)


def _loop(dataset_urn: str, path: str, problem: str) -> ExtractError:
    return ExtractError(dataset_urn=dataset_urn, file=path, problem=f"{problem}. Look at `paging`.")


def dig(body: Any, path: str) -> Any:
    """Return what lies at a dotted path; None where there is nothing."""
    for name in path.split(".") if path else ():
        if not isinstance(body, dict):
            return None
        body = body.get(name)
    return body
