"""A posted JSON document becomes a FlowConfig, or a list of all its faults in the words of Rest.li's validation.

The service's own settings of a flow are properties, so that Gobblin's clients can set them: see `FlowSettings`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from gobblin_dagster.core.errors import InvalidFlowError, SpecFault, UsageError
from gobblin_dagster.core.secrets import is_secret_name, passwords
from gobblin_dagster.service.cron import Cron, CronError
from gobblin_dagster.service.model import FailureOption, FlowConfig, FlowId, Schedule
from gobblin_dagster.spec.gobblin.entries import ENCRYPTED
from gobblin_dagster.spec.schedule import CatchUp

NAME_LENGTH = 128
"""Characters of a group or a name at most."""
MAX_PROPERTIES = 1_000
MAX_INDEXED = 400
"""Characters of a property's name, and of `owningGroup`, at most: PostgreSQL indexes no key of more than 2,700
bytes."""
MAX_TEMPLATES = 100
"""Templates, so jobs, of one flow at most."""
LEAST_INTERVAL_S = 5
"""Seconds between two fire times of one flow at least."""

EXECUTION_ID = "flow.executionId"
"""Gobblin's property with the execution id; the service sets it, users cannot."""
REQUESTERS = "gobblin.service.requester.list"
"""Gobblin's property with who asked for the flow, as JSON; an update that does not set it leaves it as it is."""
EXECUTOR = "flow.executor"
"""Where the flow's jobs run; an `ExecutorName`."""
MAX_ATTEMPTS = "job.maxAttempts"
"""How often a job that fails is started in all."""
START_DEADLINE = "gobblin.job.start.sla"
"""Gobblin's properties with the time in which a job must start begin so."""
UNSCHEDULE = "flow.unschedule"
"""Gobblin's property that stops a flow's schedule in an update."""

_KNOWN = frozenset({"id", "templateUris", "properties", "schedule", "explain", "owningGroup"})
_MISSING = "field is required but not found and has no default value"

_UTC = ZoneInfo("UTC")


class WhenFull(StrEnum):
    """What becomes of an execution for which there is no room now."""

    WAIT = "wait"
    """It is accepted, and starts when there is room."""
    REFUSE = "refuse"
    """Who asks for it hears so at once, and asks again later."""


class Concurrency(StrEnum):
    """What happens to a fire time at which an earlier execution still runs."""

    ALLOW = "allow"
    QUEUE = "queue"
    REFUSE = "refuse"


class ExecutorName(StrEnum):
    """Where the jobs of a flow run."""

    EMBEDDED = "embedded"
    """In the worker processes of the service."""
    DAGSTER = "dagster"
    """As runs of Dagster, whose assets they are."""


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """What the service itself reads from a flow's properties."""

    time_zone: ZoneInfo = _UTC
    """`flow.timeZone`: the zone in which the schedule is meant."""
    catch_up: CatchUp = CatchUp.LATEST
    """`flow.catchUp`: `all`, `latest` or `skip`."""
    concurrency: Concurrency = Concurrency.QUEUE
    """`flow.concurrency`: `allow`, `queue` or `refuse`; Gobblin's `flow.allowConcurrentExecution` means `allow` or
    `refuse`."""
    max_attempts: int = 1
    """`job.maxAttempts`: how often a job that fails is started in all."""
    on_failure: FailureOption = FailureOption.FINISH_ALL_POSSIBLE
    """`flow.failureOption`: `FINISH_ALL_POSSIBLE` or `FINISH_RUNNING`."""
    waits_for_way: bool = False
    """`flow.waitForWay`: a flow for which the topology has no way is accepted and waits until it has one."""
    may_change_edges: bool = False
    """`flow.mayChangeEdges`: a flow whose way is gone takes another one, whose jobs have watermarks of their own."""
    start_within: timedelta | None = None
    """`gobblin.job.start.sla.time`: a job that could run and does not start in this time is given up."""
    finish_within: timedelta | None = timedelta(days=1)
    """`gobblin.flow.sla.time`: an execution that is not over in this time after its start is killed."""
    executor: ExecutorName = ExecutorName.EMBEDDED
    """`flow.executor`: `embedded` or `dagster`."""
    when_full: WhenFull = WhenFull.WAIT
    """`flow.whenFull`: what becomes of an execution that somebody asks for while its group, or user, has as many as the
    service's quotas allow."""
    rows_per_second: int | None = None
    """`flow.rowsPerSecond`: rows that the flow's running jobs together read in a second at most."""
    bytes_per_second: int | None = None
    """`flow.bytesPerSecond`: bytes of input that they read in a second at most."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> FlowSettings:
        """Read a flow's properties; raises InvalidFlowError with all faults."""
        settings, faults = cls._read(properties)
        if faults:
            raise InvalidFlowError(faults=tuple(faults))
        return settings

    @classmethod
    def stored(cls, properties: Mapping[str, str]) -> FlowSettings:
        """Read the properties of a stored flow; what cannot be read counts as not set, so that no flow stops others."""
        return cls._read(properties)[0]

    @classmethod
    def _read(cls, properties: Mapping[str, str]) -> tuple[FlowSettings, list[SpecFault]]:
        faults: list[SpecFault] = []
        reader = _Settings(properties, faults)
        settings = cls(
            reader.zone("flow.timeZone"),
            reader.choice("flow.catchUp", CatchUp, cls().catch_up),
            reader.concurrency(cls().concurrency),
            reader.number(MAX_ATTEMPTS, 1, 100),
            reader.choice("flow.failureOption", FailureOption, cls().on_failure),
            reader.flag("flow.waitForWay"),
            reader.flag("flow.mayChangeEdges"),
            reader.duration(START_DEADLINE, cls().start_within),
            reader.duration("gobblin.flow.sla", cls().finish_within),
            reader.choice(EXECUTOR, ExecutorName, cls().executor),
            reader.choice("flow.whenFull", WhenFull, cls().when_full),
            reader.rate("flow.rowsPerSecond"),
            reader.rate("flow.bytesPerSecond"),
        )
        return settings, faults


_UNITS = {
    "SECONDS": timedelta(seconds=1),
    "MINUTES": timedelta(minutes=1),
    "HOURS": timedelta(hours=1),
    "DAYS": timedelta(days=1),
}
_LONGEST = timedelta(days=3650)

SETTINGS = frozenset(
    {
        "flow.timeZone",
        "flow.catchUp",
        "flow.concurrency",
        "flow.allowConcurrentExecution",
        EXECUTOR,
        MAX_ATTEMPTS,
        "flow.failureOption",
        "flow.waitForWay",
        "flow.mayChangeEdges",
        "flow.whenFull",
        "flow.rowsPerSecond",
        "flow.bytesPerSecond",
        f"{START_DEADLINE}.time",
        f"{START_DEADLINE}.timeunit",
        "gobblin.flow.sla.time",
        "gobblin.flow.sla.timeunit",
    }
)
"""Properties that the service reads; all others are parameters of the template."""
KEPT = ("flow.", "job.", "gobblin.", "user.")
"""Beginnings of Gobblin's properties that are kept, and left alone if no template takes them."""


class _Settings:
    def __init__(self, properties: Mapping[str, str], faults: list[SpecFault]) -> None:
        self._properties = properties
        self._faults = faults

    def zone(self, name: str) -> ZoneInfo:
        text = self._properties.get(name, "UTC")
        try:
            return ZoneInfo(text)
        except (KeyError, ValueError, OSError):  # OSError: a folder of the database, or a name that is too long
            self._refuse(name, text, "is not a time zone; expected a name such as Europe/Berlin")
        return _UTC

    def choice(self, name: str, choices: type[StrEnum], default: Any) -> Any:
        text = self._properties.get(name)
        if text is None:
            return default
        if text in [choice.value for choice in choices]:
            return choices(text)
        self._refuse(name, text, f"is not one of {', '.join(choices)}")
        return default

    def concurrency(self, default: Concurrency) -> Concurrency:
        name = "flow.allowConcurrentExecution"
        allowed = self._properties.get(name)
        if allowed is not None and allowed not in ("true", "false"):
            self._refuse(name, allowed, "is not one of true, false")
        default = {"true": Concurrency.ALLOW, "false": Concurrency.REFUSE}.get(allowed or "", default)
        chosen: Concurrency = self.choice("flow.concurrency", Concurrency, default)
        return chosen

    def flag(self, name: str) -> bool:
        """Read `true` or `false`; false if it is not set."""
        text = self._properties.get(name, "false")
        if text not in ("true", "false"):
            self._refuse(name, text, "is not one of true, false")
        return text == "true"

    def number(self, name: str, default: int, most: int) -> int:
        text = self._properties.get(name, str(default))
        if re.fullmatch(r"[0-9]{1,9}", text) and 1 <= int(text) <= most:
            return int(text)
        self._refuse(name, text, f"is not a number from 1 to {most}")
        return default

    def rate(self, name: str) -> int | None:
        """Read a whole number; None if it is not set."""
        text = self._properties.get(name)
        if text is None:
            return None
        if self._properties.get(EXECUTOR) == ExecutorName.DAGSTER:
            self._refuse(name, text, f"does not slow down runs of Dagster; leave it out, or set {EXECUTOR}=embedded")
            return None
        if re.fullmatch(r"[0-9]{1,15}", text) and int(text) >= 1:
            return int(text)
        self._refuse(name, text, "is not a whole number of 1 or more, in a second")
        return None

    def duration(self, name: str, default: timedelta | None) -> timedelta | None:
        """Read `NAME.time` in `NAME.timeunit`, which is Java's word for a unit and minutes if it is not set."""
        number, unit = self._properties.get(f"{name}.time"), self._properties.get(f"{name}.timeunit", "MINUTES")
        if unit not in _UNITS:
            self._refuse(f"{name}.timeunit", unit, f"is not one of {', '.join(_UNITS)}")
        elif number is not None and not re.fullmatch(r"[0-9]{1,9}", number):
            self._refuse(f"{name}.time", number, "is not a whole number")
        elif number is not None and not _UNITS["SECONDS"] <= int(number) * _UNITS[unit] <= _LONGEST:
            self._refuse(f"{name}.time", number, f"{unit.lower()} is not between 1 second and 3650 days")
        elif number is not None:
            return int(number) * _UNITS[unit]
        return default

    def _refuse(self, name: str, text: str, problem: str) -> None:
        self._faults.append(SpecFault(f"/properties/{name}", f'"{text[:80]}" {problem}'))


def parse_flow_config(document: Any) -> FlowConfig:
    """Return the flow that a JSON document describes.

    Args:
        document: the document in Gobblin's nested form.

    Raises:
        InvalidFlowError: with all faults.
        UsageError: the list of requesters is no list.

    Source: gobblin-flow-config-service `FlowConfig.pdl` and its validators. Differs: a flow that fires more often than
        every `LEAST_INTERVAL_S` seconds is refused.
    """
    if not isinstance(document, dict):
        raise InvalidFlowError(faults=(SpecFault("", f"{_shown(document)} cannot be coerced to a record"),))
    faults = list(_faults(document))
    if faults:
        raise InvalidFlowError(faults=tuple(faults))
    schedule = document.get("schedule")
    config = FlowConfig(
        FlowId(document["id"]["flowGroup"], document["id"]["flowName"]),
        document["templateUris"],
        dict(document.get("properties", {})),
        Schedule(schedule["cronSchedule"], schedule.get("runImmediately", False)) if schedule else None,
        document.get("owningGroup"),
        document.get("explain", False),
        {name: value for name, value in document.items() if name not in _KNOWN},
    )
    FlowSettings.of(config.properties)
    _require_requesters(config.properties.get(REQUESTERS, "[]"))
    return config


def _require_requesters(text: str) -> None:
    """Refuse a list of requesters that Gobblin's clients cannot read back."""
    try:
        is_list = isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        is_list = False
    if not is_list:
        raise UsageError(problem=f"{REQUESTERS} takes a JSON list, got {text[:80]!r}.")


def _faults(document: dict[str, Any]) -> Iterator[SpecFault]:
    if "id" not in document:
        yield SpecFault("/id", _MISSING)
    elif not isinstance(document["id"], dict):
        yield _coerced("/id", document["id"], "a record")
    else:
        for name in ("flowGroup", "flowName"):
            yield from _name_faults(document["id"], name)
    if "templateUris" not in document:
        yield SpecFault("/templateUris", _MISSING)
    elif not isinstance(document["templateUris"], str):
        yield _coerced("/templateUris", document["templateUris"], "String")
    elif (problem := template_problem(document["templateUris"])) is not None:
        yield SpecFault("/templateUris", problem)
    if "properties" not in document:
        yield SpecFault("/properties", _MISSING)
    else:
        yield from _property_faults(document["properties"])
    if "schedule" in document:
        yield from _schedule_faults(document["schedule"])
    yield from _other_faults(document)


def _other_faults(document: dict[str, Any]) -> Iterator[SpecFault]:
    if not isinstance(document.get("explain", False), bool):
        yield _coerced("/explain", document["explain"], "Boolean")
    owner = document.get("owningGroup", "")
    if not isinstance(owner, str):
        yield _coerced("/owningGroup", owner, "String")
    elif len(owner) > MAX_INDEXED:
        yield SpecFault("/owningGroup", f"has {len(owner)} characters; at most {MAX_INDEXED} are allowed")
    elif _unstorable(owner):
        yield SpecFault("/owningGroup", "holds a control character or half a unicode character")
    for name, value in document.items():
        if name not in _KNOWN and _has_half_character(json.dumps({name: value}, ensure_ascii=False)):
            yield SpecFault(f"/{name[:80]}", "holds half a unicode character")


def _name_faults(key: dict[str, Any], name: str) -> Iterator[SpecFault]:
    place = f"/id/{name}"
    if name not in key:
        yield SpecFault(place, _MISSING)
    elif not isinstance(key[name], str):
        yield _coerced(place, key[name], "String")
    elif not 1 <= len(key[name]) <= NAME_LENGTH:
        yield SpecFault(place, f'length of "{key[name][:200]}" is out of range 1...{NAME_LENGTH}')
    elif _unstorable(key[name]):
        yield SpecFault(place, "holds a control character or half a unicode character")


def _property_faults(properties: Any) -> Iterator[SpecFault]:
    if not isinstance(properties, dict):
        yield _coerced("/properties", properties, "a map")
        return
    if len(properties) > MAX_PROPERTIES:
        yield SpecFault("/properties", f"has {len(properties)} entries; at most {MAX_PROPERTIES} are allowed")
        return
    for name, value in properties.items():
        if not isinstance(value, str):
            yield _coerced(f"/properties/{name[:80]}", value, "String")
        elif len(name) > MAX_INDEXED:
            problem = f"its name has {len(name)} characters; at most {MAX_INDEXED} are allowed"
            yield SpecFault(f"/properties/{name[:80]}", problem)
        elif "\0" in name + value or _has_half_character(name + value):
            yield SpecFault(f"/properties/{name[:80]!r}", "holds a NUL or half a unicode character")
        elif name.startswith(KEPT) and is_literal_secret(name, value):
            problem = "must hold no secret, as flows are shown; let the template take it from the environment: ${NAME}"
            yield SpecFault(f"/properties/{name}", problem)


def is_literal_secret(name: str, value: str) -> bool:
    """Tell whether a property that no construct checks holds a secret as it is."""
    if not value or value in ("true", "false") or "${" in value or ENCRYPTED.fullmatch(value):
        return False
    return is_secret_name(name) or bool(passwords(value))


def _schedule_faults(schedule: Any) -> Iterator[SpecFault]:
    if not isinstance(schedule, dict):
        yield _coerced("/schedule", schedule, "a record")
        return
    if not isinstance(schedule.get("runImmediately", False), bool):
        yield _coerced("/schedule/runImmediately", schedule["runImmediately"], "Boolean")
    if "cronSchedule" not in schedule:
        yield SpecFault("/schedule/cronSchedule", _MISSING)
        return
    cron = schedule["cronSchedule"]
    if not isinstance(cron, str):
        yield _coerced("/schedule/cronSchedule", cron, "String")
        return
    try:
        parsed = Cron.parse(cron)
    except CronError as error:
        yield SpecFault("/schedule/cronSchedule", f'"{cron[:200]}" is not in Cron format ({error})')
        return
    interval_s = parsed.least_interval_s()
    if interval_s < LEAST_INTERVAL_S:
        problem = f'"{cron[:200]}" fires every {interval_s} s; at least {LEAST_INTERVAL_S} s must lie between'
        yield SpecFault("/schedule/cronSchedule", problem)
    elif not parsed.can_fire():
        yield SpecFault("/schedule/cronSchedule", f'"{cron[:200]}" never fires: no year has such a day')


def template_problem(uris: str) -> str | None:
    """Return why a text is no list of template URIs; None if it is one."""
    if uris.count(",") >= MAX_TEMPLATES:
        return f"names {uris.count(',') + 1} templates; at most {MAX_TEMPLATES} are allowed"
    for uri in uris.split(","):
        try:
            parts = urlsplit(uri.strip())
        except ValueError:
            parts = None
        # An empty text has the right form, in Gobblin too: that it names no template is for the compiler to say.
        is_template = parts is not None and parts.scheme.lower() == "fs" and parts.path.strip("/")
        if uris and (not is_template or _unstorable(uri)):
            return f'"{uris[:200]}" is not a well-formed comma-separated list of URIs'
    return None


def _unstorable(text: str) -> bool:
    return any(sign < " " or sign == "\x7f" for sign in text) or _has_half_character(text)


def _has_half_character(text: str) -> bool:
    """JSON can write half of a character as an escape; no database and no file system takes it."""
    return any("\ud800" <= sign <= "\udfff" for sign in text)


def _coerced(place: str, value: Any, expected: str) -> SpecFault:
    return SpecFault(place, f"{_shown(value)} cannot be coerced to {expected}")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)[:80]
