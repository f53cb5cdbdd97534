"""The options of the source `files`."""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from gobblin_dagster.constructs.options.durations import SignedDuration
from gobblin_dagster.constructs.options.zones import ZoneName
from gobblin_dagster.constructs.registry import ConstructKind
from gobblin_dagster.constructs.sources.files.by_modified_time import ReadChanged
from gobblin_dagster.constructs.sources.files.checksums import Compare
from gobblin_dagster.constructs.sources.files.pattern import PathPattern
from gobblin_dagster.spec.job import ConstructSpec, SpecModel
from gobblin_dagster.storage.remote import credentials_problem


class NewFiles(StrEnum):
    """How the source knows what is new."""

    DATE = "date"
    """By the dates in paths: what is dated before the watermark was read."""
    MODIFIED = "modified"
    """By remembering every file that was read, with size and time of change."""
    NAME = "name"
    """By names in order: what sorts before the watermark was read."""


class FilesOptions(SpecModel):
    """Options of the source `files`."""

    path: str = Field(min_length=1)
    """Pattern of file paths, relative to the project, absolute, or a URL: `data/{dataset}/{date:%Y-%m-%d}.csv`.
    `{dataset}` is the dataset.urn (`{dataset:**}`: one folder or more), `{date:<strptime format>}` the year, month, day, hour
    or minute of the files, `*` any text inside one name (not a leading dot). Without `{dataset}` all files are one dataset,
    named `<namespace>.<table>`."""
    format: Annotated[ConstructSpec, ConstructKind.FORMAT]
    """How files are read: `{type: csv}`, `jsonl`, `text`, `parquet`, `orc` or `avro`, with options."""
    new_files: NewFiles | None = None
    """What tells new files: their `date`, `modified` (each file is remembered with size and time of change) or `name` (files
    are read in the order of their names). Default: `date` where `path` has a `{date:...}`, else `modified`."""
    start: date | None = None
    """Files dated before it are left alone; default: none are."""
    timezone: ZoneName = "UTC"
    """Time zone of the dates in paths, e.g. `Europe/Berlin`."""
    lead_time: SignedDuration | None = None
    """Files younger than this are left for a later run, e.g. `2h`. By `date`, a date's age counts from its beginning, and may
    lie below zero: `-30d` for files that come up to 30 days before their dates begin; else a file's age counts from its last
    change. Default: none waits but, by `date`, those dated more than a day ahead."""
    lookback: int = Field(default=0, ge=0)
    """Dates before the newest one whose late files are still read, each once; only by `date`."""
    read_changed: ReadChanged = ReadChanged.REPORT
    """What becomes of a file that grew or was replaced after it was read: `report` names it in the plan, `again` reads it
    again, whole, `fail` fails its dataset. Only where files are remembered: by `modified`, or with a `lookback`."""
    compare: Compare = Compare.MODIFIED
    """What tells that a file changed after it was read: `modified` its size and time of change, `checksum` its content, of
    which a checksum is remembered, and taken again where the time of change is another, `checksum_always` its content in any
    case. Only where files are remembered, as `read_changed`."""
    max_files_per_run: int | None = Field(default=None, ge=1)
    """Most files of one dataset in one run; files of one date stay together even so. Default: all."""
    files_per_work_unit: int = Field(default=64, ge=1)
    """Most files that one work unit takes; files of one date stay together even so."""
    bytes_per_work_unit: int = Field(default=128 << 20, ge=1)
    """Most bytes that one work unit takes; files of one date stay together even so."""
    _pattern: PathPattern = PrivateAttr()

    @field_validator("path")
    @classmethod
    def _compiles(cls, path: str) -> str:
        if problem := credentials_problem(path):
            raise ValueError(problem)
        PathPattern.parse(path)
        return path.removeprefix("file://")

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        self._pattern = PathPattern.parse(self.path, self.timezone)
        if not self._pattern.has_date:
            if self.new_files is NewFiles.DATE:
                raise ValueError(
                    "`new_files: date` needs a {date:...} in `path`, e.g. data/{dataset}/{date:%Y-%m-%d}.csv"
                )
            if self.start is not None:
                raise ValueError("`start` needs a {date:...} in `path`")
        if self.lookback and self.order is not NewFiles.DATE:
            raise ValueError(f"`lookback` counts dates, and `new_files` is `{self.order}`; leave it out")
        if self.read_changed is not ReadChanged.REPORT and not self.remembers:
            raise ValueError(
                f"`read_changed: {self.read_changed}` needs files to be remembered: set `new_files: modified`, or a `lookback`"
            )
        if self.compare is not Compare.MODIFIED and not self.remembers:
            raise ValueError(
                f"`compare: {self.compare}` needs files to be remembered: set `new_files: modified`, or a `lookback`"
            )
        return self

    @property
    def pattern(self) -> PathPattern:
        """The path, compiled."""
        return self._pattern

    @property
    def order(self) -> NewFiles:
        """What tells new files, the default put in."""
        return self.new_files or (NewFiles.DATE if self._pattern.has_date else NewFiles.MODIFIED)

    @property
    def remembers(self) -> bool:
        """Whether files that were read are remembered one by one."""
        return self.order is NewFiles.MODIFIED or self.lookback > 0
