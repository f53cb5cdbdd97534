"""Paging: read a list that an API divides into pages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from gobblin_dagster.constructs.clients.http import Answer, HttpClient, WrittenFloat
from gobblin_dagster.core.errors import ExtractError
from gobblin_dagster.spec.job import SpecModel


class NoPaging(SpecModel):
    """One answer has the whole list."""

    type: Literal["none"] = "none"


class PageNumberPaging(SpecModel):
    """Pages by number, up to an empty one; a short page may not be the last, because servers limit its size."""

    type: Literal["page"]
    param: str = "page"
    """Query parameter for the number."""
    start: int = 1
    """Number of the first page."""
    pages: str | None = None
    """Path of the number of pages in the answer, with dots: `meta.total_pages`; for servers that refuse a page behind
    the last one, or whose pages may be empty. Default: the list ends with an empty page."""


class OffsetPaging(SpecModel):
    """Pages by the number of records before them, up to an empty one."""

    type: Literal["offset"]
    param: str = "offset"
    """Query parameter for the offset."""


class CursorPaging(SpecModel):
    """Each answer has the cursor of the next page; the last has none."""

    type: Literal["cursor"]
    param: str = "cursor"
    """Query parameter for the cursor."""
    next: str = "next_cursor"
    """Path of the cursor in the answer, with dots: `meta.next`."""
    next_may_lack: bool = False
    """Whether the last answer has nothing at this path, instead of null or an empty text. Default: that fails the work
    unit, because with a misspelt path only one page would be read."""


class LinkPaging(SpecModel):
    """Each answer has a header `Link` with `rel="next"`; the last has none."""

    type: Literal["link"]


class NextUrlPaging(SpecModel):
    """Each answer has the URL of the next page in its body, whole or relative; the last has none."""

    type: Literal["next_url"]
    next: str = "next"
    """Path of the URL in the answer, with dots: `links.next`; or a name with dots, as `@odata.nextLink`."""
    next_may_lack: bool = False
    """Whether the last answer has nothing at this path, instead of null or an empty text. Default: that fails the work
    unit, because with a misspelt path only one page would be read."""


class AfterPaging(SpecModel):
    """Pages that begin behind a record: each request names the last record of the page before, up to an empty page."""

    type: Literal["after"]
    param: str = "starting_after"
    """Query parameter for the last record."""
    column: str = "id"
    """Field of the record that the parameter holds, with dots."""


Paging: TypeAlias = Annotated[
    NoPaging | PageNumberPaging | OffsetPaging | CursorPaging | LinkPaging | NextUrlPaging | AfterPaging,
    Field(discriminator="type"),
]


def read_pages(
    client: HttpClient,
    dataset_urn: str,
    path: str,
    params: Mapping[str, str | int],
    paging: Paging,
    records_path: str,
    *,
    may_lack: bool,
) -> Iterator[tuple[list[Any], int]]:
    """Yield the records of each page, with the answer's size in bytes; raises as `HttpClient.get`.

    Raises:
        ExtractError: the server repeats a page, all pages or a cursor, which would never end; an answer has nothing at
            `records_path` (unless `may_lack`) or at the path of the next cursor (unless `next_may_lack`), which may be
            misspelt.
    """
    target, asked, seen, taken = path, dict(params), set[str](), 0
    if isinstance(paging, PageNumberPaging):
        asked[paging.param] = paging.start
    before, pages = "", _Pages()
    while True:
        answer = client.get(target, asked)
        records = _records(answer, dataset_urn, path, records_path, may_lack)
        if records:
            pages.add(records, dataset_urn, path)
            yield records, answer.size_bytes
        taken += len(records)
        match paging:
            case NoPaging():
                return
            case PageNumberPaging() | OffsetPaging():
                number = int(asked.get(paging.param, 0)) + 1
                if _is_last(answer, records, dataset_urn, path, paging, number):
                    return
                before = _other_than(before, records, dataset_urn, path, paging.param)
                asked[paging.param] = number if isinstance(paging, PageNumberPaging) else taken
            case CursorPaging() | LinkPaging() | NextUrlPaging() | AfterPaging():
                following = _following(answer, records, dataset_urn, path, paging)
                if following is None:
                    return
                if following in seen:
                    raise _loop(dataset_urn, path, "leads back to a page that was read")
                seen.add(following)
                if isinstance(paging, CursorPaging):  # a server can give a new cursor with each answer
                    before = _other_than(before, records, dataset_urn, path, paging.param)
                if isinstance(paging, CursorPaging | AfterPaging):
                    asked[paging.param] = following
                else:
                    # A link has its own parameters; those in the body of a POST stay.
                    target, asked = following, asked if client.has_body else {}


class _Pages:
    """The pages of a list, known by their contents: some servers take a page behind the last one for the first."""

    def __init__(self) -> None:
        self._digests: list[bytes] = []
        self._begins: list[int] = []
        """Pages from which on all were like those from the first one on."""

    def add(self, records: list[Any], dataset_urn: str, path: str) -> None:
        """Add a page; raises ExtractError if all pages, two or more, came twice in their order."""
        digest = hashlib.blake2b(json.dumps(records, sort_keys=True).encode(), digest_size=16).digest()
        number = len(self._digests)
        self._begins = [begin for begin in self._begins if self._digests[number - begin] == digest]
        if number > 1 and digest == self._digests[0]:
            self._begins.append(number)
        self._digests.append(digest)
        if any(number + 1 == 2 * begin for begin in self._begins):
            raise _loop(dataset_urn, path, "hands out its pages again from the first one on")


def _is_last(
    answer: Answer,
    records: list[Any],
    dataset_urn: str,
    path: str,
    paging: PageNumberPaging | OffsetPaging,
    following: int,
) -> bool:
    """Return True if the server says that there is no page `following`."""
    if isinstance(paging, OffsetPaging) or paging.pages is None:
        return not records
    pages = dig(answer.body, paging.pages)
    if isinstance(pages, bool) or not isinstance(pages, int):
        if not records:
            return True
        problem = (
            f"expected the number of pages at {paging.pages!r}, got {json.dumps(pages)[:40]}. The answer has "
            f"{contents(answer.body)}. Correct `paging.pages`."
        )
        raise ExtractError(dataset_urn=dataset_urn, file=path, problem=problem)
    return following - paging.start >= pages


def _other_than(before: str, records: list[Any], dataset_urn: str, path: str, param: str) -> str:
    """Return the records of a page as text; raises ExtractError if the page before it was the same."""
    content = json.dumps(records, sort_keys=True)
    if records and content == before:
        raise _loop(dataset_urn, path, f"ignores the parameter {param!r}: it repeats a page")
    return content


def _records(answer: Answer, dataset_urn: str, path: str, records_path: str, may_lack: bool) -> list[Any]:
    records = dig(answer.body, records_path)
    if records is None and (may_lack or not answer.has_content or _is_null(answer.body, records_path)):
        return []
    if not isinstance(records, list):
        got = "nothing" if records is None else type(records).__name__
        problem = f"expected a list at {records_path or 'the top'!r}, got {got}."
        if records is None:
            problem += (
                f" The answer has {contents(answer.body)}. Correct `records`; a server that leaves out empty lists "
                "needs `records_may_lack: true`."
            )
        elif not records_path and isinstance(records, dict):
            problem += f" The answer has {contents(answer.body)}. Set `records` to the path of the list."
        raise ExtractError(dataset_urn=dataset_urn, file=path, problem=problem)
    return records


def contents(body: Any) -> str:
    """Return the fields of an object, or what it is instead of one, for messages."""
    names = ", ".join(map(str, body)) if isinstance(body, dict) else type(body).__name__
    return names[:200]


def _is_null(body: Any, path: str) -> bool:
    """Return True if there is a null at a dotted path; False if there is nothing."""
    if isinstance(body, dict) and path in body:
        return True
    above, _, name = path.rpartition(".")
    parent = dig(body, above)
    return not path or (isinstance(parent, dict) and name in parent)


def _following(
    answer: Answer,
    records: list[Any],
    dataset_urn: str,
    path: str,
    paging: CursorPaging | LinkPaging | NextUrlPaging | AfterPaging,
) -> str | None:
    """Return the cursor, record or URL that leads to the next page; None after the last one."""
    if isinstance(paging, LinkPaging):
        try:
            return answer.next_link
        except ValueError as error:
            problem = f"answers with a header `Link` that cannot be read: {error}. Its next page would be lost."
            raise ExtractError(dataset_urn=dataset_urn, file=path, problem=problem) from error
    if isinstance(paging, AfterPaging):
        return _last_record(records, dataset_urn, path, paging.column)
    what = "URL" if isinstance(paging, NextUrlPaging) else "cursor"
    found = dig(answer.body, paging.next)
    if found is None and answer.has_content and not (paging.next_may_lack or _is_null(answer.body, paging.next)):
        problem = (
            f"expected the next {what} at {paging.next!r}, or null there, got nothing. The answer has "
            f"{contents(answer.body)}. Correct `paging.next`; a server that leaves it out on the last page needs "
            "`next_may_lack: true`."
        )
        raise ExtractError(dataset_urn=dataset_urn, file=path, problem=problem)
    if found in (None, "", False):
        return None
    if found is True or not isinstance(found, str if what == "URL" else str | int | float):
        problem = f"expected the next {what} at {paging.next!r}, got {type(found).__name__}. Correct `paging.next`."
        raise ExtractError(dataset_urn=dataset_urn, file=path, problem=problem)
    if what == "cursor":
        return found.text if isinstance(found, WrittenFloat) else str(found)
    try:
        return answer.absolute(found)
    except ValueError as error:  # a host or port that cannot be
        problem = f"expected the next URL at {paging.next!r}, got a text that is none: {error}. Correct `paging.next`."
        raise ExtractError(dataset_urn=dataset_urn, file=path, problem=problem) from error


def _last_record(records: list[Any], dataset_urn: str, path: str, column: str) -> str | None:
    """Return the value of a column in the last record; None for an empty page."""
    if not records:
        return None
    value = dig(records[-1], column)
    if isinstance(value, bool) or not isinstance(value, str | int):
        problem = (
            f"expected a text or whole number at {column!r} in the last record of the page, got "
            f"{type(value).__name__ if value is not None else 'nothing'}. Correct `paging.column`."
        )
        raise ExtractError(dataset_urn=dataset_urn, file=path, problem=problem)
    return str(value)


def _loop(dataset_urn: str, path: str, problem: str) -> ExtractError:
    return ExtractError(dataset_urn=dataset_urn, file=path, problem=f"{problem}. Check `paging`.")


def dig(body: Any, path: str) -> Any:
    """Return the value at a dotted path, or at the name that is the whole path; None if there is nothing."""
    if isinstance(body, dict) and path in body:
        return body[path]
    for name in path.split(".") if path else ():
        if not isinstance(body, dict):
            return None
        body = body.get(name)
    return body
