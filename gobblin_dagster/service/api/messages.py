"""One request and one answer, apart from the server that carries them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gobblin_dagster.service.api import restli
from gobblin_dagster.service.api.errors import BadRequest, RestError
from gobblin_dagster.service.model import FlowId
from gobblin_dagster.service.security.access import Principal

_JSON = "application/json"
MOST_LEVELS = 100
"""Lists and objects of a body inside each other: what is stored of it must be read again, and pydantic reads 200."""


@dataclass(frozen=True)
class Request:
    """A request whose target is still as it came over the wire."""

    method: str
    path: str
    """Percent-encoded, without the query."""
    query: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    principal: Principal

    @cached_property
    def segments(self) -> tuple[str, ...]:
        """The parts of the path, percent-encoded; a trailing slash makes no part."""
        return tuple(self.path.strip("/").split("/"))

    @cached_property
    def version(self) -> int:
        """The protocol's version, 1 or 2; a key of version 2 is taken for what it is without a header too."""
        text = self.headers.get("x-restli-protocol-version")
        if text in ("2.0.0", "1.0.0"):
            return int(text[0])
        if text is not None:
            raise BadRequest(f"Rest.li protocol version {text[:20]!r} is not supported; use 2.0.0 or 1.0.0.")
        return 2 if len(self.segments) > 1 and self.segments[1].startswith("(") else 1

    @cached_property
    def parameters(self) -> dict[str, restli.Value]:
        """The parameters of the query."""
        return restli.parse_query(self.query, version=self.version)

    def text(self, name: str) -> str | None:
        """Return a parameter as a text; None if it is not there."""
        return restli.text_parameter(self.parameters, name)

    def key(self) -> dict[str, str]:
        """Return the fields of the key in the path."""
        return restli.parse_path_key(self.segments[1], version=self.version, what=f"the key of /{self.segments[0]}")

    def flow_parameter(self) -> FlowId:
        """Return the parameter `flowId`; raises BadRequest if it is missing or no record."""
        fields = restli.record_parameter(self.parameters, "flowId", ("flowGroup", "flowName"))
        return FlowId(fields["flowGroup"], fields["flowName"])

    def document(self) -> Any:
        """Return the body as JSON; raises BadRequest."""
        too_deep = f"The body is nested too deeply: it may have {MOST_LEVELS} levels."
        try:
            document = json.loads(self.body.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
        except UnicodeDecodeError as error:
            raise BadRequest(f"The body is not UTF-8: {error.reason} at byte {error.start}.") from error
        except RecursionError as error:
            raise BadRequest(too_deep) from error
        except ValueError as error:
            raise BadRequest(f"The body is not JSON: {error}.") from error
        if _is_deeper(document, MOST_LEVELS):
            raise BadRequest(too_deep)
        return document

    def expected_version(self) -> int | None:
        """Return the version of the flow that `If-Match` names; None for any."""
        text = self.headers.get("if-match")
        if text is None or text.strip() == "*":
            return None
        number = text.strip().strip('"')
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise BadRequest(f'If-Match takes the version of a flow, such as "3", got {text[:40]!r}.')
        return int(number)


def _is_deeper(document: Any, levels: int) -> bool:
    """Tell whether more lists and objects than `levels` are inside each other."""
    here = [document]
    for _ in range(levels):
        here = [value for one in here if isinstance(one, dict | list) for value in _values(one)]
        if not here:
            return False
    return any(isinstance(one, dict | list) for one in here)


def _values(one: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return one.values() if isinstance(one, dict) else one


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    """Refuse a number that would be told as `Infinity`, which clients cannot read."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


@dataclass(frozen=True)
class Answer:
    """What goes back."""

    status: int = 200
    document: Any = None
    """JSON; None: an empty body."""
    headers: Mapping[str, str] = field(default_factory=dict)
    more: Iterator[list[Any]] | None = None
    """Elements of a long collection that follow those of the document, in parts that are made while they are sent."""

    @cached_property
    def body(self) -> bytes:
        """The document as UTF-8; half of a unicode character, which a message may quote, stays a JSON escape."""
        return b"" if self.document is None else _json_bytes(self.document)

    def parts(self) -> Iterator[bytes]:
        """Yield the body of an answer with `more` in parts; raises what making `more` raises."""
        around = {name: value for name, value in self.document.items() if name != "elements"}
        yield b'{"elements": ' + _json_bytes(self.document["elements"])[:-1]
        for elements in self.more or ():
            if elements:
                yield b", " + _json_bytes(elements)[1:-1]
        yield b"], " + _json_bytes(around)[1:]

    def all_headers(self, version: int) -> dict[str, str]:
        """Return the headers, those of the protocol among them."""
        headers = {"X-RestLi-Protocol-Version": f"{version}.0.0", **self.headers}
        if self.document is not None:
            headers["Content-Type"] = _JSON
        return headers


def _json_bytes(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode(errors="backslashreplace")


STALE = '110 - "Response is Stale"'
"""The header `Warning` of answers that may be out of date."""


def error_answer(error: RestError, version: int) -> Answer:
    """Return the answer that tells of an error."""
    name = "X-LinkedIn-Error-Response" if version == 1 else "X-RestLi-Error-Response"
    return Answer(error.status, error.document(), {name: "true", **error.headers})


def collection(elements: list[Any], path: str, query: str, start: int, count: int | None, *, more: bool) -> Answer:
    """Return a page of elements, with links to the pages beside it.

    Args:
        elements: what the page holds.
        path: of the request.
        query: of the request.
        start: how many elements come before the page.
        count: how many it holds at most; None: all there are.
        more: whether elements come after it.
    """
    shown = 10 if count is None else count
    kept = [part for part in query.split("&") if part and part.partition("=")[0] not in ("start", "count")]

    def link(rel: str, first: int) -> dict[str, str]:
        href = "&".join([*kept, f"start={first}", f"count={shown}"])
        return {"rel": rel, "type": _JSON, "href": f"{path}?{href}"}

    links = []
    if count is not None and start > 0:
        links.append(link("prev", max(0, start - shown)))
    if more:
        links.append(link("next", start + shown))
    return Answer(200, {"elements": elements, "paging": {"count": shown, "start": start, "links": links}})


def require_fields(key: Mapping[str, str], names: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return fields of a key in order; raises BadRequest if one is missing."""
    missing = [name for name in names if name not in key]
    if missing:
        raise BadRequest(f"The key of {what} lacks {', '.join(missing)}.")
    return tuple(key[name] for name in names)
