"""AssetSettings: how Dagster shows the branches of a job: keys, owners, tags and so on, and how old they may be."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from gobblin_dagster.spec.model import SpecModel

_OWNER = re.compile(r"team:[A-Za-z0-9_.-]+|[^@\s]+@[^@\s]+\.[^@\s]+")
_TAG = re.compile(r"(?:[A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}")
_TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{0,63}")
_WORD = re.compile(r"\{(namespace|table|branch)\}")
_KEY = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}

_Kind = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,63}$")]

Age = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,4}[mhd]$")]
"""Minutes, hours or days: `90m`, `26h`, `8d`."""


def age(text: str) -> timedelta:
    """Return an `Age` as a value.

    Example:
        >>> age("26h")
        datetime.timedelta(days=1, seconds=7200)
    """
    return timedelta(**{_UNITS[text[-1]]: int(text[:-1])})


class FreshnessSpec(SpecModel):
    """How old the newest commit of a branch may become before Dagster shows the asset as stale."""

    fail_after: Age
    """Age from which the asset is shown as failed: `90m`, `26h`, `8d`."""
    warn_after: Age | None = None
    """Age from which a warning is shown; less than `fail_after`. Default: no warning."""

    @model_validator(mode="after")
    def _warns_first(self) -> Self:
        if self.warn_after is not None and age(self.warn_after) >= age(self.fail_after):
            raise ValueError(f"warn_after ({self.warn_after}) must be less than fail_after ({self.fail_after})")
        return self


class SlaSpec(SpecModel):
    """How old each dataset may become before a sensor of Dagster tells of it."""

    max_age: Age | None = None
    """Greatest time since the last commit of a dataset: `26h`. A dataset without new data is late too."""
    max_lag: Age | None = None
    """Greatest time from a dataset's watermark to now, for watermarks that are dates or times: `90m`."""

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.max_age is None and self.max_lag is None:
            raise ValueError("expected max_age or max_lag")
        return self


class AssetSettings(SpecModel):
    """How Dagster shows the branches of the job."""

    key: str | None = None
    """Asset key, its parts separated by `/`: `lake/{namespace}/{table}/{branch}`. Dagster keeps the history of an asset
    under its key. Default: `{namespace}/{table}/{branch}`."""
    upstream: tuple[str, ...] | None = None
    """Keys of the assets that the job reads from, e.g. those of another program: `[exports/orders]`. Default: the
    folder, tables, topics or API that the source names."""
    owners: tuple[str, ...] = ()
    """Email addresses, or teams as `team:shop`."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Tags by name, such as `{domain: sales}`; letters, digits, `_`, `-` and `.`."""
    group: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+$")] | None = None
    """Group of the assets. Default: the name of the job."""
    kinds: Annotated[tuple[_Kind, ...], Field(max_length=10)] | None = None
    """Kinds that Dagster shows with an icon, such as `[iceberg, silver]`. Default: `spark` and the writer's type."""
    table_name: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Name of the table in catalogs: `warehouse.{namespace}.{table}_{branch}`. Default: the table that is published to,
    or namespace, table and branch."""
    uri: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Address in catalogs, one for all datasets: `s3://lake/{table}/{branch}`. Default: the folder of each dataset."""
    freshness: FreshnessSpec | None = None
    """How old the newest commit of a branch may become; Dagster looks at all datasets together. Default: any age."""
    sla: SlaSpec | None = None
    """How old each dataset may become. Default: any age."""

    @field_validator("owners")
    @classmethod
    def _known_forms(cls, owners: tuple[str, ...]) -> tuple[str, ...]:
        for owner in owners:
            if not _OWNER.fullmatch(owner):
                raise ValueError(f"an owner is an email address, or a team such as 'team:shop'; got {owner!r}")
        return owners

    @field_validator("tags")
    @classmethod
    def _allowed_characters(cls, tags: dict[str, str]) -> dict[str, str]:
        for name, value in tags.items():
            if not (_TAG.fullmatch(name) and _TAG_VALUE.fullmatch(value)):
                raise ValueError(
                    f"names and values of tags have up to 63 letters, digits, '_', '-' and '.'; got {name!r}: {value!r}"
                )
        return tags

    @field_validator("key", "table_name", "uri")
    @classmethod
    def _known_words(cls, name: str | None) -> str | None:
        if name is not None and re.search(r"[{}]", _WORD.sub("", name)):
            raise ValueError(f"the words in braces are {{namespace}}, {{table}} and {{branch}}; got {name!r}")
        return name

    @field_validator("key", "upstream")
    @classmethod
    def _are_keys(cls, found: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for key in (found,) if isinstance(found, str) else found or ():
            if not _KEY.fullmatch(_WORD.sub("x", key)):
                raise ValueError(f"a key is parts of letters, digits, '_', '-' and '.', with '/' between; got {key!r}")
        return found
