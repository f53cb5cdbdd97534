"""HttpClient: JSON over HTTP with a rate limit and retries; secrets come from the environment and are never shown."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from io import BytesIO
from typing import Any, Literal, Self
from urllib.parse import urljoin, urlsplit, urlunsplit

from pydantic import Field, field_validator, model_validator

from gobblin_dagster.constructs.clients.environment import from_environment
from gobblin_dagster.core.errors import ExtractError, TransientError
from gobblin_dagster.core.secrets import as_written, is_secret_name
from gobblin_dagster.core.utils.in_time import in_time
from gobblin_dagster.core.utils.json_text import object_of
from gobblin_dagster.spec.job import SpecModel

_RETRIED = frozenset({429, 500, 502, 503, 504})
_FIRST_PAUSE_S = 0.5
_PART_BYTES = 1 << 16
_NO_CONTENT = 204
_NOT_MODIFIED = 304
_UNAUTHORIZED = 401
_PARAMETERS = r'(?:\s*;\s*(?:[^\s;,="]+\s*(?:=\s*(?:"(?:[^"\\]|\\.)*"|[^;,"]*))?)?)*'
_LINK = re.compile(rf"[\s,]*<([^>]*)>({_PARAMETERS})\s*(?:,|$)")
"""One link of a header `Link`, with its parameters, of which URLs and quoted texts may hold any of `;,=`."""
_PARAMETER = re.compile(r';\s*([^\s;,="]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;,"]*)')


class ClientCredentials(SpecModel):
    """How to get a token by OAuth 2 with client credentials; it is sent as `Authorization: Bearer ...`."""

    token_url: str = Field(pattern=r"^https?://[^/@\s]+/?[^?#\s]*$")
    """URL that gives tokens; it may be on another host."""
    client_id_env: str = Field(min_length=1)
    """Environment variable with the client's id."""
    client_secret_env: str = Field(min_length=1)
    """Environment variable with the client's secret."""
    scope: str = ""
    """Scopes to ask for, separated by blanks; default: those that the server gives."""


class HttpOptions(SpecModel):
    """How to send requests; part of the options of the source `rest`."""

    url: str = Field(min_length=1)
    """Base URL, e.g. `https://api.example.org/v2`. No request goes to another host; redirects are not followed."""
    params: dict[str, str] = Field(default_factory=dict)
    """Query parameters of each request."""
    method: Literal["GET", "POST"] = "GET"
    """`POST` sends `body` as JSON; parameters of pages and of the cursor are then keys of it."""
    body: dict[str, Any] = Field(default_factory=dict)
    """What each POST request sends, e.g. `{filter: {status: open}}`."""
    oauth: ClientCredentials | None = None
    """Gets a token by OAuth 2 with client credentials, and a new one when the server answers 401. Default: none."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of each request; secrets belong in `headers_env`."""
    headers_env: dict[str, str] = Field(default_factory=dict)
    """Environment variables by name of the header, e.g. `Authorization: API_TOKEN`. They are read in the process that
    sends requests, and never written to plans, logs or state."""
    timeout_s: float = Field(default=30.0, gt=0, le=86_400)
    """Seconds to wait for a connection, and between two parts of an answer."""
    answer_timeout_s: float = Field(default=600.0, gt=0, le=86_400)
    """Seconds after which an answer must be whole: one that comes byte by byte, without end, fails its dataset alone as
    transient."""
    max_answer_mib: int = Field(default=256, ge=1, le=16_384)
    """Most MiB of one answer, unpacked; a longer one fails its dataset. As objects in memory it takes several times as
    much. An API sends long lists in pages (`paging`)."""
    requests_per_s: float | None = Field(default=None, gt=0)
    """Most requests per second of one work unit; default: no limit."""
    retries: int = Field(default=5, ge=0, le=20)
    """How often a request is repeated after 429, 500, 502, 503, 504, a lost connection, or an answer that is cut."""
    retry_after_cap_s: float = Field(default=300.0, ge=0)
    """Longest pause in seconds that a server may ask for by `Retry-After`; a longer one fails the work unit as
    transient."""

    @model_validator(mode="after")
    def _has_body_to_post(self) -> Self:
        if self.body and self.method != "POST":
            raise ValueError("`body` belongs to `method: POST`")
        return self

    @field_validator("headers")
    @classmethod
    def _no_secrets(cls, headers: dict[str, str]) -> dict[str, str]:
        secret = sorted(name for name in headers if is_secret_name(name))
        if secret:
            raise ValueError(f"{', '.join(secret)} must not be in a job file; name its variable in `headers_env`")
        return headers

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"expected http://host/... or https://host/..., got {url!r}")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("give user and password by `headers_env`, and query parameters by `params`")
        return url.rstrip("/")


class WrittenFloat(float):
    """A number with a fraction that keeps the server's text, from which decimals are made exactly."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> WrittenFloat:
        """Parse the text, and keep it; raises ValueError for a number that would become infinite."""
        number = super().__new__(cls, text)
        if math.isinf(number):
            raise ValueError(f"the number {text} is too large for 64 bits")
        number.text = text
        return number

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer."""

    body: Any
    size_bytes: int
    links: str = ""
    """The header `Link`."""
    url: str = ""
    """URL that answered."""
    has_content: bool = True
    """Whether the server sent anything; False for 204."""

    @property
    def next_link(self) -> str | None:
        """Absolute URL from the header `Link` with `rel="next"`; None if there is none.

        A link may have other relations too: `rel="next last"` leads to the last page. Raises ValueError for a header
        or URL that cannot be read.
        """
        text, at = self.links.rstrip(" \t,"), 0
        while at < len(text):
            link = _LINK.match(text, at)
            if link is None:
                raise ValueError(f"no link at character {at + 1}")
            # The first `rel` counts; names are in any case (RFC 8288).
            relations = next((value for name, value in _PARAMETER.findall(link[2]) if name.lower() == "rel"), "")
            if "next" in relations.strip('"').lower().split():
                return self.absolute(link[1].strip())
            at = link.end()
        return None

    def absolute(self, link: str) -> str:
        """Return a link of the answer as a whole URL; `http` becomes `https` if the server answered by `https`.

        Servers behind a proxy often write the scheme by which the proxy asked them. Raises ValueError for no URL.
        """
        there, here = urlsplit(urljoin(self.url, link)), urlsplit(self.url)
        is_usual = there.port in (None, 80)  # raises for a port that cannot be
        if is_usual and (here.scheme, there.scheme, there.hostname) == ("https", "http", here.hostname):
            there = there._replace(scheme="https", netloc=here.netloc)
        return urlunsplit(there)


class HttpClient:
    """Send requests to one server for one dataset; for use in one thread.

    Raises:
        TransientError: the server cannot be reached or is busy after all retries.
        ExtractError: the server refuses, redirects, or answers no JSON.
        EnvironmentFaultError: a variable that `headers_env` or `oauth` names is missing.

    Source: gobblin-core `RestApiConnector`, with the retries and throttling of gobblin-http. Differs: heeds
    `Retry-After`.
    """

    def __init__(self, options: HttpOptions, dataset_urn: str, sleep: Callable[[float], None] = time.sleep) -> None:
        import requests  # noqa: PLC0415  # slow to import, and needed by this source only

        self._options = options
        self._urn = dataset_urn
        self._sleep = sleep
        self._requests = requests
        self._session = requests.Session()
        secret = from_environment(options.headers_env, "header")
        self._session.headers.update({"Accept": "application/json", **options.headers, **secret})
        self._session.auth = as_it_is
        self._client = {}
        if options.oauth is not None:
            names = {"client_id": options.oauth.client_id_env, "client_secret": options.oauth.client_secret_env}
            self._client = from_environment(names, "client credential")
        self._next_at = 0.0

    @property
    def has_body(self) -> bool:
        """Whether requests have their parameters in a body."""
        return self._options.method == "POST"

    def get(self, target: str, params: Mapping[str, str | int]) -> Answer:
        """Request a path below the base URL, or an absolute URL of the same host; POST has `params` in its body."""
        options = self._options
        is_path = "://" not in target
        url = options.url + "/" + target.lstrip("/") if is_path else target
        if _origin(url) != _origin(options.url):
            scheme, host, port = _origin(url)
            raise self._refused(target, f"leads to another host, {scheme}://{host}:{port}; it is not asked.")
        sent: dict[str, Any] = {"params": {**options.params, **params} if is_path else None}  # a link has its own
        if options.method == "POST":
            sent = {"params": options.params if is_path else None, "json": {**options.body, **params}}
        for attempt in range(options.retries + 1):
            self._wait_for_turn()
            problem, pause = "", _FIRST_PAUSE_S * 2**attempt
            try:
                response, content = self._send(url, sent)
                if response.status_code not in _RETRIED:
                    return self._answer(target, response, content)
                problem = f"it answers {response.status_code}"
                pause = self._asked_pause(response) or pause
            except _BusyTokensError as error:
                problem = str(error)
            except _CutError as error:
                problem = f"its answer {error}"
            except _TooLongError:
                problem = f"answers more than {options.max_answer_mib:,} MiB (`max_answer_mib`); see `paging`."
                raise self._refused(target, problem) from None
            except TimeoutError:
                problem = f"its answer is not whole after {options.answer_timeout_s:g} s (`answer_timeout_s`)"
                break
            except ValueError as error:  # the request itself is invalid, and was not sent
                raise self._refused(target, _unsendable(error)) from None
            except self._requests.RequestException as error:
                problem = f"no answer from {urlsplit(url).netloc} ({_reason(error)})"
            if attempt < options.retries:
                if pause > options.retry_after_cap_s:
                    problem += f" and wants to be asked again in {pause:.0f} s, more than `retry_after_cap_s`"
                    break
                self._sleep(pause)
        raise TransientError(problem=f"Dataset {self._urn!r}, {_shown(target)}: {problem}.")

    def _send(self, url: str, sent: Mapping[str, Any]) -> tuple[Any, bytes]:
        """Return the response to a request, and its content; `oauth`: get a token before the first, and after 401."""
        options = self._options
        has_token = "Authorization" in self._session.headers
        if options.oauth is not None and not has_token:
            self._get_token(options.oauth)
        response, content = self._request(options.method, url, sent)
        if options.oauth is not None and has_token and response.status_code == _UNAUTHORIZED:
            self._get_token(options.oauth)
            response, content = self._request(options.method, url, sent)
        return response, content

    def _request(self, method: str, url: str, sent: Mapping[str, Any]) -> tuple[Any, bytes]:
        """Send one request; raises TimeoutError, _TooLongError, or what `requests` raises."""
        options = self._options
        how = {"timeout": options.timeout_s, "allow_redirects": False, "stream": True, **sent}
        is_given_up = threading.Event()

        def exchange() -> tuple[Any, bytes]:
            content = BytesIO()
            with self._session.request(method, url, **how) as response:
                for part in response.iter_content(_PART_BYTES):
                    content.write(part)
                    if content.tell() > options.max_answer_mib << 20 or is_given_up.is_set():
                        raise _TooLongError
            return response, content.getvalue()

        try:
            return in_time(exchange, options.answer_timeout_s)
        finally:
            is_given_up.set()

    def _get_token(self, oauth: ClientCredentials) -> None:
        asked = {"grant_type": "client_credentials", **self._client, **({"scope": oauth.scope} if oauth.scope else {})}
        self._session.headers.pop("Authorization", None)
        options = self._options
        secret = [*options.headers_env, *(name for name, value in options.headers.items() if as_written(value))]
        is_elsewhere = _origin(oauth.token_url) != _origin(options.url)
        # Secrets in headers are for the server of the API alone.
        headers = dict.fromkeys(secret) if is_elsewhere else None
        response, content = self._request("POST", oauth.token_url, {"data": asked, "headers": headers})
        if response.status_code in _RETRIED:
            raise _BusyTokensError(
                f"no token from {urlsplit(oauth.token_url).netloc}, which answers {response.status_code}"
            )
        try:
            token = json.loads(content).get("access_token") if response.ok else None
        except (ValueError, AttributeError):
            token = None
        if not isinstance(token, str):
            problem = f"gives no token (it answers {response.status_code}); check `oauth` and its variables."
            raise self._refused(oauth.token_url, problem)
        self._session.headers["Authorization"] = f"Bearer {token}"

    def close(self) -> None:
        """Release connections."""
        self._session.close()

    def _answer(self, target: str, response: Any, content: bytes) -> Answer:
        status = response.status_code
        if status in (401, 403):
            raise self._refused(target, f"answers {status}; check the credentials that `headers_env` or `oauth` names.")
        if 300 <= status < 400 and status != _NOT_MODIFIED:
            raise self._refused(target, f"answers {status}, a redirect; put the new address into `url`.")
        if not response.ok or status == _NOT_MODIFIED:
            raise self._refused(target, f"answers {status}.")
        try:
            parsing: dict[str, Any] = {"parse_float": WrittenFloat, "object_pairs_hook": object_of}
            body = None if status == _NO_CONTENT else json.loads(_text(response, content), **parsing)
        except json.JSONDecodeError as error:
            if _is_cut(error):
                raise _CutError(_MIDDLE if error.doc.strip() else "is empty") from None
            raise self._refused(target, "answers no JSON.") from None
        except UnicodeDecodeError as error:
            if error.end == len(error.object) and error.reason == "unexpected end of data":
                raise _CutError(_MIDDLE) from None
            where = f"byte {error.object[error.start]:#04x} at {error.start:,}"
            raise self._refused(target, f"answers text that is not {error.encoding}: {where}.") from None
        except LookupError:
            raise self._refused(target, "answers text in a charset that is unknown here.") from None
        except ValueError as error:
            raise self._refused(target, f"answers JSON that cannot be read: {error}.") from None
        except RecursionError:
            raise self._refused(target, "answers JSON with lists and objects nested too deep to be read.") from None
        links = response.headers.get("Link", "")
        return Answer(body, len(content), links, response.url, has_content=status != _NO_CONTENT)

    def _asked_pause(self, response: Any) -> float:
        """Return the seconds to wait that a server asks for, as a number or a date; 0 if it asks for none."""
        text = response.headers.get("Retry-After", "")
        try:
            return max(0.0, float(text))
        except ValueError:
            pass
        try:
            return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
        except (ValueError, TypeError):
            return 0.0

    def _wait_for_turn(self) -> None:
        if self._options.requests_per_s is None:
            return
        now = time.monotonic()
        if now < self._next_at:
            self._sleep(self._next_at - now)
        self._next_at = max(now, self._next_at) + 1 / self._options.requests_per_s

    def _refused(self, target: str, problem: str) -> ExtractError:
        return ExtractError(dataset_urn=self._urn, file=_shown(target), problem=problem)


_MIDDLE = "ends in the middle of the JSON"


class _CutError(Exception):
    """An answer is not whole. The connection does not tell: urllib3 takes a gzip stream without its end."""


class _TooLongError(Exception):
    """An answer is longer than it may be."""


class _BusyTokensError(Exception):
    """The server of tokens cannot give one at the moment."""


_REST_OF_CUT = re.compile(r"[-+.\w\\]*\s*")
"""What may follow the place of the error in JSON that is cut: a part of a word, number or escape."""


def _is_cut(error: json.JSONDecodeError) -> bool:
    """Return whether a list or object has no end, or no beginning; other text, such as a page in HTML, is no JSON."""
    text = error.doc.lstrip()
    if not text.startswith(("[", "{")):
        return not text
    return error.msg.startswith("Unterminated") or _REST_OF_CUT.fullmatch(error.doc, error.pos) is not None


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url.replace("\\", "/"))  # a backslash ends the host for requests
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _text(response: Any, content: bytes) -> str | bytes:
    """Return the JSON of an answer: UTF-8, UTF-16 or UTF-32, unless it names another charset.

    Not `response.json()`: requests takes text without a charset for Latin-1, and replaces what it cannot decode. Raises
    UnicodeDecodeError, LookupError.
    """
    kind = Message()
    kind["Content-Type"] = response.headers.get("Content-Type", "")
    charset = kind.get_content_charset("utf-8")
    return content if charset.startswith("utf") else content.decode(charset)  # `json` finds out which UTF it is


def as_it_is(request: Any) -> Any:
    """Return the request unchanged: without this, requests would send user and password from ~/.netrc."""
    return request


def _unsendable(error: ValueError) -> str:
    """Return why a request cannot be sent, without the error's text, which contains the header's value."""
    if type(error).__name__ in ("InvalidHeader", "UnicodeEncodeError"):
        what = "a header has a line break, a blank before it, or letters beyond Latin-1"
        return f"cannot be requested: {what}; check `headers_env`."
    return f"cannot be requested: {type(error).__name__}; check `url`."


def _reason(error: BaseException) -> str:
    """Return the reason of an error, without its text, which contains the URL with all parameters."""
    root = error
    while (below := root.__cause__ or root.__context__) is not None:
        root = below
    said = root.strerror if isinstance(root, OSError) else None
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _shown(target: str) -> str:
    """Return only the path, because parameters may contain tokens."""
    return urlsplit(target).path or "/"
