"""PathPattern: the `path` of the `files` source, e.g. `data/{dataset}/{date:%Y-%m-%d}.csv`, compiled level by level.

A level is the text between two `/`. Each level is matched alone, so that listing can skip folders that cannot match.
A name that holds `*`, `{` or `}` itself has a backslash before each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

_PLACEHOLDER = re.compile(r"\\([{}*])|\{([^{}]*)\}|(\*+)|([{}])")
_SPECIAL = re.compile(r"[{}*]")
_DIRECTIVES = {"Y": r"\d{4}", "y": r"\d{2}", "m": r"\d{2}", "d": r"\d{2}", "j": r"\d{3}", "H": r"\d{2}", "M": r"\d{2}"}
_KNOWN = "known: {dataset}, {dataset:**}, {dataset:one,other}, {date:<strptime format>}, {one,other}, *, **"
_NIGHT = timedelta(days=1)
"""More than the time in which a clock shows an hour twice."""
NO_DATE = datetime(1970, 1, 1, tzinfo=UTC)
"""Beginning of the date of files whose paths have none."""


class Granularity(StrEnum):
    """The length of a date in a path.

    Source: `date.partitioned.source.partition.granularity`, `DatePartitionType` of gobblin-core.
    """

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    YEAR = "year"


class Hidden(StrEnum):
    """Which names are hidden: a leading `*`, and `**`, do not match them.

    Source: those of Gobblin's sources that list files themselves hide none; `FileInputFormat` of Hadoop hides names
    that begin with a dot or an underscore.
    """

    DOT = "dot"
    HADOOP = "hadoop"
    NONE = "none"


_NOT = {Hidden.DOT: r"(?!\.)", Hidden.HADOOP: r"(?![._])", Hidden.NONE: ""}
_FIXED = {Granularity.MINUTE: timedelta(minutes=1), Granularity.HOUR: timedelta(hours=1)}


class Token(NamedTuple):
    """A piece of the pattern inside one level."""

    kind: str
    """`text`, `any` (`*`), `deep` (`**`), `one_of` (`{a,b}`), `dataset` (whose value is `a,b` of `{dataset:a,b}`),
    `tree` (`{dataset:**}`) or `date`."""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the pattern: a folder name, or the file name at the last."""

    strict: re.Pattern[str]
    loose: re.Pattern[str] | None
    """As `strict`, but with any text as date; None if the level has no part of the date."""
    is_tree: bool = False
    """Whether the level matches one or more folder names, all parts of the urn."""
    is_deep: bool = False
    """Whether the level matches any number of folder names, also none, that are no part of the urn."""


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A compiled path pattern.

    Source: `date.partitioned.source.partition.pattern` of gobblin-core. Differs: names the dataset too; the smallest
    directive gives the granularity.
    """

    text: str
    levels: tuple[tuple[Token, ...], ...]
    """All levels, including those of `root`."""
    date_format: str
    """The strptime format, with `/` between levels; empty if paths have no date."""
    granularity: Granularity
    timezone: ZoneInfo
    hidden: Hidden = Hidden.DOT
    """What a leading `*`, and `**`, do not match."""

    @classmethod
    def parse(cls, text: str, timezone: str = "UTC", hidden: Hidden = Hidden.DOT) -> PathPattern:
        """Compile a pattern; raises ValueError with the reason if it is no valid pattern."""
        tokens = list(_tokens(text))
        dates = [token.value for token in tokens if token.kind == "date"]
        if len(dates) > 1:
            raise ValueError(f"expected at most one {{date:...}} in {text!r}, got {len(dates)}")
        if sum(token.kind in ("dataset", "tree") for token in tokens) > 1:
            raise ValueError(f"expected at most one {{dataset}} in {text!r}")
        levels = tuple(_levels(tokens))
        if any(len(level) > 1 and any(token.kind == "tree" for token in level) for level in levels):
            raise ValueError("{dataset:**} must stand alone between two '/'")
        if sum(token.kind in ("deep", "tree") for token in tokens) > 1:
            raise ValueError(f"expected at most one '**' in {text!r}")
        if any(len(level) > 1 and any(token.kind == "deep" for token in level) for level in levels):
            raise ValueError("'**' must stand alone between two '/'")
        if not levels[-1] or levels[-1][0].kind in ("deep", "tree"):
            raise ValueError(f"the last part of {text!r} must be a pattern of file names")
        date_format = dates[0] if dates else ""
        return cls(text, levels, date_format, _granularity(date_format), ZoneInfo(timezone), hidden)

    @property
    def has_dataset(self) -> bool:
        """Whether the urn is part of the path."""
        return any(token.kind in ("dataset", "tree") for level in self.levels for token in level)

    @property
    def has_date(self) -> bool:
        """Whether paths have a date."""
        return bool(self.date_format)

    def one_of(self) -> list[str]:
        """Return all texts of `{one,other}` and `{dataset:one,other}`."""
        return self._texts_of("one_of", "dataset")

    def named_datasets(self) -> list[str]:
        """Return the names of `{dataset:one,other}`."""
        return self._texts_of("dataset")

    def _texts_of(self, *kinds: str) -> list[str]:
        tokens = (token for level in self.levels for token in level if token.kind in kinds)
        return [text for token in tokens for text in token.value.split(",") if text]

    def bind(self, dataset_urn: str) -> PathPattern:
        """Return the pattern of one dataset's files: its urn replaces `{dataset}` as plain text."""
        bound: list[tuple[Token, ...]] = []
        for level in self.levels:
            if level and level[0].kind == "tree":
                bound += [(Token("text", part),) for part in dataset_urn.split("/")]
            else:
                bound.append(tuple(Token("text", dataset_urn) if t.kind == "dataset" else t for t in level))
        return replace(self, levels=tuple(bound))

    def root(self) -> str:
        """Return the leading levels that are plain text: the folder where listing begins."""
        names = ["".join(token.value for token in level) for level in self.levels[: self._root_depth()]]
        return "/" if names == [""] else "/".join(names)

    def below_root(self) -> tuple[Level, ...]:
        """Return the levels below `root`, compiled."""
        return _compiled_below_root(self)

    @property
    def dataset_level(self) -> int:
        """The number of levels between `root` and the one that names the dataset, or after the file if none does."""
        below = self.levels[self._root_depth() :]
        named = (n for n, level in enumerate(below) if any(token.kind in ("dataset", "tree") for token in level))
        return next(named, len(below))

    def text_below_root(self) -> str:
        """Return the text of the levels below `root`."""
        return self.text.split("/", self._root_depth())[-1]

    def matches_below_root(self, names: Sequence[str]) -> bool:
        """Return True if the folders and the file below the root match; any date matches."""
        return bool(self._dates_below_root(names))

    def start_below_root(self, names: Sequence[str]) -> datetime | None:
        """Return the beginning of a path's date, NO_DATE without dates; None if it does not match below the root."""
        for text in sorted(self._dates_below_root(names)):
            with suppress(ValueError):
                return self.start_of(text)
        return None

    def _dates_below_root(self, names: Sequence[str]) -> set[str]:
        """Return the texts that may be the date of a path below the root; empty if it does not match."""
        levels = self.below_root()
        at = {(0, ""), (1, "")} if levels[0].is_deep else {(0, "")}
        for name in names:
            following: set[tuple[int, str]] = set()
            for index, dates in at:
                match = levels[index].strict.fullmatch(name) if index < len(levels) else None
                if match is None:
                    continue
                if levels[index].is_tree or levels[index].is_deep:
                    following.add((index, dates))
                date = match.groupdict().get("date")
                following.add((index + 1, dates if date is None else f"{dates}/{date}".removeprefix("/")))
            at = following | {(one + 1, dates) for one, dates in following if one < len(levels) and levels[one].is_deep}
        return {dates for index, dates in at if index == len(levels)}

    def _root_depth(self) -> int:
        plain = (all(token.kind == "text" for token in level) for level in self.levels[:-1])
        return next((depth for depth, is_plain in enumerate(plain) if not is_plain), len(self.levels) - 1)

    def start_of(self, date_text: str) -> datetime:
        """Return the beginning of a date; raises ValueError if the text is no date of the calendar."""
        if not self.has_date:
            return NO_DATE
        start = datetime.strptime(date_text, self.date_format).replace(tzinfo=self.timezone)
        try:
            self.shift(start, 1)
            instant = start.astimezone(UTC)
        except OverflowError as error:
            raise ValueError(f"{date_text!r} is too far away") from error
        # strptime takes day 366 of each year, and hours that clocks skip: both are the instant of another date, which
        # then would count as read.
        if self._text_of(instant) != date_text:
            raise ValueError(f"there is no {date_text!r}")
        return instant

    def _text_of(self, instant: datetime) -> str:
        local = instant.astimezone(self.timezone)
        return local.strftime(self.date_format.replace("%Y", f"{local.year:04}"))  # strftime does not pad all years

    def end_of(self, start: datetime) -> datetime:
        """Return the end (exclusive) of the date that begins at `start`."""
        end = self.shift(start, 1)
        if self.granularity is not Granularity.HOUR:
            return end
        # Lord Howe's clocks skip half an hour: the hour with the other half ends when the next one begins.
        local = start.astimezone(self.timezone).replace(minute=0, second=0)
        return min(end, (local + timedelta(hours=1)).astimezone(UTC))

    def is_over(self, start: datetime, instant: datetime) -> bool:
        """Return whether the date that begins at `start` has ended at an instant.

        In the night when clocks go back, a date of an hour or a minute ends when its name is used for the second time.
        """
        if self.end_of(start) > instant:
            return False
        return instant - start > _NIGHT or self.start_of(self._text_of(instant)) > start

    def dates_around(self, instant: datetime) -> tuple[datetime, datetime] | None:
        """Return the beginning and the end of the date that holds an instant; None if a date begins or ends there.

        Raises:
            ValueError: the instant is too far away.
            OverflowError: as above.
        """
        start = self.start_of(self._text_of(instant))
        # In the night when clocks go back, the first hour of two with one name ends where the second one begins.
        before = self.start_of(self._text_of(instant - timedelta(microseconds=1)))
        return None if instant in (start, self.end_of(before)) else (start, self.end_of(start))

    def shift(self, start: datetime, periods: int) -> datetime:
        """Return the beginning of another date: `periods` dates after (or before) the one that begins at `start`.

        Raises:
            OverflowError: the result is outside of the calendar.
        """
        if length := _FIXED.get(self.granularity):
            return start + periods * length
        # A local day has 23 or 25 hours when clocks change: add to the wall clock, not to the instant. It begins at one
        # o'clock where they skip the hour behind midnight, as in Cairo; the other day still begins at midnight.
        local = start.astimezone(self.timezone).replace(hour=0, minute=0, second=0)
        if self.granularity is Granularity.DAY:
            return (local + timedelta(days=periods)).astimezone(UTC)
        months = local.year * 12 + local.month - 1 + periods * (12 if self.granularity is Granularity.YEAR else 1)
        if not 12 <= months < 120_000:
            raise OverflowError(f"year {months // 12} is out of range")
        return local.replace(year=months // 12, month=months % 12 + 1).astimezone(UTC)


def escaped(name: str) -> str:
    r"""Return the pattern that matches a name and nothing else.

    Example:
        >>> print(escaped("sales {2024}*.csv"))
        sales \{2024\}\*.csv
    """
    return _SPECIAL.sub(r"\\\g<0>", name)


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    for match in _PLACEHOLDER.finditer(text):
        if match.start() > position:
            yield Token("text", text[position : match.start()])
        escaped, inner, stars, brace = match.groups()
        if escaped:
            yield Token("text", escaped)
        elif brace:
            raise ValueError(f"unbalanced {brace!r} in {text!r}")
        elif stars:
            if len(stars) > 2:
                raise ValueError(f"expected '*' or '**', got {stars[:9]!r}")
            yield Token("any" if len(stars) == 1 else "deep")
        else:
            yield _placeholder(inner)
        position = match.end()
    if position < len(text):
        yield Token("text", text[position:])


def _placeholder(inner: str) -> Token:
    """Return the token for the text between braces; raises ValueError."""
    if inner == "dataset":
        return Token("dataset")
    if inner == "dataset:**":
        return Token("tree")
    if inner.startswith("dataset:"):
        return Token("dataset", _names(inner, inner.removeprefix("dataset:")))
    if inner.startswith("date:"):
        return Token("date", inner.removeprefix("date:"))
    if inner == "date":
        raise ValueError("{date} needs its format, e.g. {date:%Y-%m-%d}")
    if "," not in inner:
        raise ValueError(f"unknown placeholder {{{inner}}}; {_KNOWN}")
    return Token("one_of", _names(inner, inner))


def _names(inner: str, names: str) -> str:
    if "/" in names or "*" in names or not all(names.split(",")):
        raise ValueError(f"{{{inner}}}: expected names, or parts of names, inside of one folder")
    return names


def _levels(tokens: list[Token]) -> Iterator[tuple[Token, ...]]:
    """Split tokens at `/`, also inside a date's format."""
    level: list[Token] = []
    for token in tokens:
        first, *others = token.value.split("/")
        if first or token.kind in ("any", "dataset", "deep", "tree"):
            level.append(Token(token.kind, first))
        for part in others:
            yield tuple(level)
            level = [Token(token.kind, part)] if part else []
    yield tuple(level)


@lru_cache(maxsize=16)
def _compiled_below_root(pattern: PathPattern) -> tuple[Level, ...]:
    """Return `below_root`, remembered: whoever asks about a path asks about thousands."""
    return tuple(_compiled(level, pattern.hidden) for level in pattern.levels[pattern._root_depth() :])


def _compiled(level: tuple[Token, ...], hidden: Hidden) -> Level:
    strict, loose = "", ""
    for token in level:
        if token.kind == "date":
            strict += f"(?P<date>{_date_regex(token.value)})"
            loose += "(?P<date>.+?)"
            continue
        if token.kind == "text":
            piece = re.escape(token.value)
        elif token.kind in ("any", "deep"):
            # As in every shell, a leading `*` does not match hidden files.
            piece = ".*" if strict else f"{_NOT[hidden]}.*"
        elif token.kind == "one_of":
            piece = f"(?:{_one_of(token)})"
        else:
            piece = f"(?P<dataset>{_one_of(token) if token.value else '.+'})"
        strict, loose = strict + piece, loose + piece
    has_date = any(token.kind == "date" for token in level)
    first = level[0].kind if level else ""
    loosely = re.compile(loose, re.DOTALL) if has_date else None
    return Level(re.compile(strict, re.DOTALL), loosely, first == "tree", first == "deep")


def _one_of(token: Token) -> str:
    return "|".join(map(re.escape, token.value.split(",")))


def _date_regex(date_format: str) -> str:
    return "".join(
        _DIRECTIVES[part[1]] if len(part) == 2 and part[0] == "%" and part[1] in _DIRECTIVES else re.escape(part)
        for part in re.findall(r"%.|[^%]+", date_format)
    )


def _granularity(date_format: str) -> Granularity:
    """Return the length of the smallest directive; raises ValueError if the format does not give a date."""
    if not date_format:
        return Granularity.DAY
    found = re.findall(r"%(.?)", date_format)
    unknown = sorted({f"%{name}" for name in found if name not in _DIRECTIVES})
    if unknown:
        raise ValueError(f"{{date:{date_format}}} has {', '.join(unknown)}; known: %{', %'.join(sorted(_DIRECTIVES))}")
    if len(found) != len(set(found)):
        raise ValueError(f"{{date:{date_format}}} names a directive twice")
    names = set(found)
    if not names & {"Y", "y"} or ("d" in names and "m" not in names):
        raise ValueError(f"{{date:{date_format}}} must give year, month and day, e.g. %Y-%m-%d, or year and month")
    if "M" in names and "H" not in names:
        raise ValueError(f"{{date:{date_format}}} has minutes (%M) without hours (%H)")
    if not names & {"d", "j"}:
        if "H" in names:
            raise ValueError(f"{{date:{date_format}}} has hours (%H) without days (%d or %j)")
        return Granularity.MONTH if "m" in names else Granularity.YEAR
    if "H" not in names:
        return Granularity.DAY
    return Granularity.MINUTE if "M" in names else Granularity.HOUR
