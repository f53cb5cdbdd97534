"""ProjectSpec: the content of `gobblin.yaml`: where jobs and state are, which Spark to use, and what is allowed."""

from __future__ import annotations

import os
import re
from ipaddress import ip_address
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.spec.job import ConstructSpec, Name, SpecModel

PROJECT_FILE = "gobblin.yaml"
TOKEN_FILE = ".gobblin/service.token"  # noqa: S105 - a path below the project's folder, no secret
"""The token that users of the service must know; readable for the owner of the project alone."""

STATE_STORE = "sqlite:///.gobblin/state.db"
"""The state store of projects that name none."""


class SparkSpec(SpecModel):
    """Settings of the Spark that runs work units."""

    master: str = "local[2,4]"
    """Spark master. For local Spark always write `local[cores,4]`: 4 is the number of tries per task, and with fewer a
    single dead worker ends the whole run."""
    remote: str | None = None
    """Spark Connect address (`sc://host:port`); replaces `master`."""
    conf: dict[str, str] = Field(default_factory=dict)
    """Further Spark settings."""
    start: Literal["always", "when_needed"] = "always"
    """Whether each run with work starts Spark, or only one that needs it: a run on a local master that reads little
    runs in processes of this machine instead, which start faster."""
    keep_warm: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,4}[smh]$")] | None = None
    """How long a worker with Spark waits for the next `gobblin run` (`90s`, `15m`, `2h`). Default: each run starts its
    own Spark and ends it, so nothing stays behind."""

    @property
    def keep_warm_s(self) -> int:
        """Seconds of `keep_warm`; 0 if there is no worker."""
        unit = {"s": 1, "m": 60, "h": 3600}
        return int(self.keep_warm[:-1]) * unit[self.keep_warm[-1]] if self.keep_warm else 0

    @property
    def local_cores(self) -> int | None:
        """Cores of a local master (`local[2,4]` -> 2); None for a cluster or a server."""
        match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", self.master)
        if match is None or self.remote:
            return None
        return (os.cpu_count() or 1) if match.group(1) == "*" else int(match.group(1) or 1)


class AllowSpec(SpecModel):
    """What job files may use, for people who run job files of others.

    A list that is set allows only what it names. A list that is not set allows everything.
    """

    paths: tuple[str, ...] | None = None
    """Folders whose files may be read and written, with all that is below them: paths (relative to the project) or
    URLs such as `s3://bucket/landing`."""
    environment: tuple[str, ...] | None = None
    """Environment variables that job files may name; `*` stands for any characters."""
    modules: tuple[str, ...] | None = None
    """Python modules whose classes and functions job files may name, with all submodules; or single targets
    `module:name`."""
    hosts: tuple[str, ...] | None = None
    """Servers that may be used: `host`, `host:port`, `*.domain`, an address, or a network (`10.0.0.0/8`)."""
    sources: tuple[str, ...] | None = None
    """Types of sources that jobs may read from, such as `files` or `kafka`; `module:Class` for a class of a module,
    which `modules` must allow too."""
    options: tuple[str, ...] = ()
    """Further settings of Spark, Kafka, catalogs, storages and database URLs that jobs may use, where one of the other
    lists is set; `*` stands for any characters. Those that are known need no entry. Also beginnings of URLs:
    `jdbc:oracle:`."""

    @property
    def lists(self) -> AllowLists:
        """The lists in the form that checks them."""
        return AllowLists(self.paths, self.environment, self.modules, self.hosts, self.sources, self.options)


class SecretSpec(SpecModel):
    """Where the value of a variable that job files name is found, if no environment variable has this name."""

    file: str = ""
    """Path of a file that holds the value; relative to the project. A line break at its end is left out."""
    command: tuple[str, ...] = ()
    """Program and arguments that print the value: `[vault, kv, get, -field=url, secret/shop]`. No shell is started."""

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if bool(self.file) == bool(self.command):
            raise ValueError("expected either `file` or `command`")
        return self


class ServiceSpec(SpecModel):
    """The service that `gobblin serve` starts."""

    host: str = "127.0.0.1"
    """Address on which requests are answered; only addresses of the machine itself are allowed so far."""
    port: int = Field(default=6956, ge=0, le=65535)
    """Port of REST; 0 takes any that is free."""
    store: Annotated[str, StringConstraints(min_length=1)] = "sqlite:///.gobblin/service.db"
    """Flows and their executions: `sqlite:///path` (relative to the project) or `postgresql://...`."""
    templates: str = "templates"
    """Folder of templates, relative to the project."""
    topology: str = "topology"
    """Folder of topology files, relative to the project: data nodes, edges, executors."""
    compiler: str = "auto"
    """What makes jobs of flows: `identity` (of a flow's templates), `multi_hop` (of the way from its source to its
    destinations), `auto` (as each flow asks for), or a class of your own, `module:Class`."""
    jobs_at_once: int = Field(default=4, ge=1, le=256)
    """Jobs that the embedded executor runs side by side."""
    executions_per_group: int | None = Field(default=None, ge=1)
    """Executions of one flow group that run side by side; more wait, the one that was accepted first comes first.
    Default: as many as there are."""
    executions_per_user: int | None = Field(default=None, ge=1)
    """Executions of one user that run side by side: of the one in the flow's property `user.to.proxy`, or else of who
    posted the flow. Default: as many as there are."""
    executions_per_owning_group: int | None = Field(default=None, ge=1)
    """Executions of flows of one `owningGroup` that run side by side. Default: as many as there are."""
    logs: Literal["text", "json"] = "text"
    """Form of log lines; `json` is one object a line, with `flow`, `execution` and `job`."""
    keep_executions: int = Field(default=1000, ge=1)
    """Newest executions of each flow whose history is kept. One that is not over is always kept."""
    keep_days: int = Field(default=90, ge=1, le=36_500)
    """Days after its end for which an execution's history is kept. The newest of each flow stays for ever."""
    listeners: tuple[ConstructSpec, ...] = ()
    """Classes of yours that hear of each change of a flow, on each node: `[{type: shop.listeners:Tell, room: data}]`.
    The other keys are arguments of the class."""
    dagster: bool = False
    """Whether `gobblin serve` also runs Dagster: its daemon, and its pages under `/dagster`."""
    anonymous: bool = False
    """Whether requests without a token may do everything: for clients that can send none, on a machine of one's own."""

    @field_validator("host")
    @classmethod
    def _is_local(cls, host: str) -> str:
        try:
            is_local = ip_address(host).is_loopback
        except ValueError:
            is_local = host == "localhost"
        if not is_local:
            raise ValueError(
                "the service answers on this machine only: use 127.0.0.1, and put a proxy with TLS and login before it"
            )
        return host


class WorkerSpec(SpecModel):
    """A worker of an executor of the topology: `gobblin worker --executor NAME`."""

    inlet: ConstructSpec = ConstructSpec(type="store")
    """Where orders come from: `{type: store}` is the service's database, `{type: kafka, brokers: ..., orders: ...,
    reports: ...}` two topics as the topology names them, `{type: rest, port: ..., certificate: ..., key: ..., ca: ...}`
    an address of this machine that the service calls, or the one that `gobblin worker --listen HOST:PORT` names."""
    store: str = ""
    """Database in which orders are kept until they are over: `postgresql://...` or `sqlite:///path`. Default: that of
    `service.store` for the inlet `store`, `sqlite:///.gobblin/worker.db` for others. Workers of one executor on several
    machines need one that they share."""
    jobs_at_once: int = Field(default=4, ge=1, le=256)
    """Jobs that the worker runs side by side."""


class AlertsSpec(SpecModel):
    """Whom Dagster tells of runs and late datasets."""

    webhook_env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Environment variable with the URL to which alerts are posted as JSON."""
    runs: tuple[Literal["failure", "success", "canceled"], ...] = ("failure",)
    """Which ends of runs are told."""


class ProjectSpec(SpecModel):
    """The settings that all jobs of a project share."""

    project: Name
    state: Annotated[str, StringConstraints(min_length=1)] = STATE_STORE
    """State store: `sqlite:///path` (relative to the project), `postgresql://...`, or `files:path` for plain files."""
    jobs: str = "jobs"
    """Folder of job files (`*.yaml`, `*.yml`; Gobblin's `*.pull`, `*.job`, `*.conf` also in folders below), relative
    to the project."""
    classes: dict[str, ConstructSpec] = Field(default_factory=dict)
    """Constructs to use in place of your own Java classes that Gobblin's job files name, by full class name:
    `{com.shop.MaskingConverter: {type: mask, columns: [email]}}`."""
    lease_ttl_s: int = Field(default=60, ge=5, le=3600)
    """Seconds after which another run may take over the datasets of a run that no longer renews its leases."""
    history_runs: int = Field(default=1000, ge=1)
    """Number of newest runs of each job whose records are kept, and of newest commits of each dataset that `gobblin
    clean` keeps in the state store."""
    spark: SparkSpec = Field(default_factory=SparkSpec)
    secrets: dict[str, SecretSpec] = Field(default_factory=dict)
    """Values of `${NAME}`, and of variables that options such as `key_env` name, from files or commands, by name."""
    allow: AllowSpec = Field(default_factory=AllowSpec)
    """What job files may use; see the page on trust. Default: everything."""
    new_data_every_s: int | None = Field(default=None, ge=5, le=86_400)
    """Seconds between two looks of Dagster's sensor for new data. Default: 10, and 120 for jobs whose source plans with
    Spark."""
    alerts: AlertsSpec | None = None
    """Whom Dagster tells of failed runs and late datasets. Default: nobody."""
    service: ServiceSpec = Field(default_factory=ServiceSpec)
    """The service that `gobblin serve` starts for this project."""
    worker: WorkerSpec = Field(default_factory=WorkerSpec)
    """The workers that `gobblin worker --executor` starts in this project."""
