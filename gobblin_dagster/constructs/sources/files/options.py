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
from gobblin_dagster.constructs.sources.files.pattern import Hidden, PathPattern
from gobblin_dagster.core.utils.url_text import path_problem
from gobblin_dagster.spec.job import ConstructSpec, SpecModel
from gobblin_dagster.storage.remote import credentials_problem


class NewFiles(StrEnum):
    """How the source finds new files."""

    DATE = "date"
    """By the dates in paths: files dated before the watermark were read."""
    MODIFIED = "modified"
    """By memory: each file that was read is remembered with size and time of change."""
    NAME = "name"
    """By names in order: files whose names sort before the watermark were read."""


class FilesOptions(SpecModel):
    """Options of the source `files`."""

    path: str = Field(min_length=1)
    """Pattern of file paths, relative to the project, absolute, or a URL: `data/{dataset}/{date:%Y-%m-%d}.csv`.
    `{dataset}` is the dataset.urn (`{dataset:**}`: one folder or more; `{dataset:one,other}`: these only),
    `{date:<strptime format>}` the year, month, day, hour or minute of the files, `*` any text inside one name (but no
    leading dot, see `hidden`), `**` between two `/` any number of folders, also none, `{one,other}` one of these texts.
    `*`, `{` and `}` of a name have a backslash before them. Without `{dataset}` all files are one dataset, named
    `<namespace>.<table>`."""
    format: Annotated[ConstructSpec, ConstructKind.FORMAT]
    """Format of the files: `{type: csv}`, `jsonl`, `json`, `text`, `parquet`, `orc` or `avro`, with options."""
    new_files: NewFiles | None = None
    """How new files are found: by their `date`, by `modified` (each file is remembered with size and time of change),
    or by `name` (files are read in the order of their names). Default: `date` if `path` has a `{date:...}`, else
    `modified`."""
    hidden: Hidden = Hidden.DOT
    """Names of files and folders that a leading `*`, and `**`, do not match: by `dot` those that begin with a dot, by
    `hadoop` also those that begin with an underscore, by `none` no name."""
    start: date | None = None
    """Files dated before this day are ignored; default: none is ignored."""
    timezone: ZoneName = "UTC"
    """Time zone of the dates in paths, e.g. `Europe/Berlin`."""
    lead_time: SignedDuration | None = None
    """Files younger than this wait for a later run, e.g. `2h`. By `date`, age counts from the beginning of the file's
    date and may be negative: `-30d` reads files that come up to 30 days before their dates. Otherwise age counts from
    the last change of the file. Default: no file waits, except, by `date`, files dated more than a day ahead."""
    lookback: int = Field(default=0, ge=0)
    """How many dates before the newest one still take late files, each read once; only by `date`. Default: none."""
    read_changed: ReadChanged = ReadChanged.REPORT
    """What to do with a file that grew or was replaced after it was read: `report` names it in the plan, `again` reads
    the whole file again, `fail` fails its dataset. Only if files are remembered: by `modified`, or with a
    `lookback`."""
    compare: Compare = Compare.MODIFIED
    """How a changed file is detected: `modified` compares size and time of change; `checksum` also compares the content
    if the time of change differs; `checksum_always` always compares the content. The checksum is stored when the file
    is read. Only if files are remembered, as for `read_changed`."""
    max_files_per_run: int | None = Field(default=None, ge=1)
    """Most files of one dataset in one run; files of one date are never separated. Default: no limit."""
    files_per_work_unit: int = Field(default=64, ge=1)
    """Most files of one work unit; files of one date are never separated."""
    bytes_per_work_unit: int = Field(default=128 << 20, ge=1)
    """Most bytes of one work unit; files of one date are never separated."""
    _pattern: PathPattern = PrivateAttr()

    @field_validator("path")
    @classmethod
    def _compiles(cls, path: str) -> str:
        if problem := credentials_problem(path) or path_problem(path):
            raise ValueError(problem)
        PathPattern.parse(path)
        return path.removeprefix("file://")

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        self._pattern = PathPattern.parse(self.path, self.timezone, self.hidden)
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
                f"`read_changed: {self.read_changed}` needs remembered files: set `new_files: modified` or a `lookback`"
            )
        if self.compare is not Compare.MODIFIED and not self.remembers:
            raise ValueError(
                f"`compare: {self.compare}` needs remembered files: set `new_files: modified` or a `lookback`"
            )
        return self

    @property
    def pattern(self) -> PathPattern:
        """`path`, compiled."""
        return self._pattern

    @property
    def order(self) -> NewFiles:
        """`new_files`, or its default."""
        return self.new_files or (NewFiles.DATE if self._pattern.has_date else NewFiles.MODIFIED)

    @property
    def remembers(self) -> bool:
        """Whether each file that was read is remembered by name."""
        return self.order is NewFiles.MODIFIED or self.lookback > 0
