"""What a topology file holds: data nodes, edges with a template each, and executors with their capabilities."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from gobblin_dagster.constructs.clients.kafka import KafkaConnection
from gobblin_dagster.spec.job import SpecModel

ANY = "any"
"""Matches every value of a dataset's field, and every type of node."""


class Dataset(NamedTuple):
    """What is known of a dataset, or what an edge takes: `any` stands for everything. `DatasetSpec` declares one.

    A tuple, because compilers compare and hash many thousands of them.

    Source: gobblin-service `DatasetDescriptor`. Differs: a field that is not known fits each constraint.
    """

    platform: str = ANY
    path: str = ANY
    format: str = ANY
    codec: str = ANY
    encryption: str = ANY

    def mismatch(self, wanted: Dataset) -> str:
        """Return why this dataset does not fit a constraint, as `format is csv, not parquet`; empty if it fits."""
        if wanted == ANYTHING:
            return ""
        for name, found, want in zip(self._fields, self, wanted, strict=True):
            if ANY not in (found, want) and not (_is_path(found, want) if name == "path" else found == want):
                return f"{name} is {found}, not {want}"
        return ""

    def through(self, taken: Dataset, made: Dataset, platform: str) -> Dataset:
        """Return the dataset after an edge.

        Args:
            taken: what the edge takes; tells what was not known before.
            made: what the edge makes; `any` leaves a field as it is.
            platform: platform of the node that the edge leads to.
        """
        return Dataset(
            platform,
            self.path if made.path == ANY else made.path,  # a pattern says what an edge takes, not where this lies
            _first_known(made.format, self.format, taken.format),
            _first_known(made.codec, self.codec, taken.codec),
            _first_known(made.encryption, self.encryption, taken.encryption),
        )


ANYTHING = Dataset()
"""A dataset that nothing is known about; as a constraint, every dataset fits it."""


class DatasetSpec(SpecModel):
    """A dataset that an edge takes or makes, as files declare it."""

    platform: str = ANY
    """Where it lies: the platform of its data node."""
    path: str = ANY
    """Path, or a pattern of paths (`orders/*`); a pattern also takes what lies below. A dataset may have several paths,
    with commas between them; all of them must fit."""
    format: str = ANY
    """Format of its files, such as `csv` or `parquet`."""
    codec: str = ANY
    """Compression, such as `gzip`."""
    encryption: str = ANY
    """Encryption, such as `gpg`, or `none`."""

    @property
    def dataset(self) -> Dataset:
        """The declaration as a value."""
        return Dataset(self.platform, self.path, self.format, self.codec, self.encryption)


def _first_known(made: str, before: str, taken: str) -> str:
    if made != ANY:
        return made
    return before if before != ANY else taken


def _is_path(paths: str, pattern: str) -> bool:
    patterns = pattern, f"{pattern.rstrip('/')}/*"
    return all(any(fnmatchcase(path, one) for one in patterns) for path in paths.split(","))


class NodeSpec(SpecModel):
    """A data node: a place that holds datasets.

    Source: gobblin-service `DataNode`.
    """

    type: str = Field(min_length=1)
    """Kind of place, in words of your own: `files`, `lake`, `database`, `broker`. Capabilities of executors name it."""
    platform: str = ANY
    """Platform that constraints on datasets compare, such as `hdfs` or `s3`."""
    description: str = ""
    """What it is, for people."""
    properties: dict[str, str] = Field(default_factory=dict)
    """Values for the templates of its edges: `bucket` fills `source.bucket` and `destination.bucket`. `${NAME}` is a
    variable of the executor's environment."""


class CapabilitySpec(SpecModel):
    """A kind of movement that an executor can do."""

    source: str = ANY
    """Type of the node that it reads; `any` is every type."""
    destination: str = ANY
    """Type of the node that it writes; `any` is every type."""

    def covers(self, source: str, destination: str) -> bool:
        """Tell whether the executor can move data from one type of node to another."""
        return self.source in (ANY, source) and self.destination in (ANY, destination)


class KafkaTopics(KafkaConnection):
    """The two topics of an executor."""

    orders: str = Field(min_length=1)
    """Topic of orders to the executor. Orders of one flow go to one partition, and keep their order."""
    reports: str = Field(min_length=1)
    """Topic of reports from the executor."""
    format: Literal["json", "gobblin"] = "json"
    """Form of the orders: `json` for `gobblin worker`, `gobblin` for a cluster of Gobblin's, which reads job specs in
    Avro; then `reports` is the topic of its tracking events."""


class RestAddress(SpecModel):
    """A worker that takes orders over HTTPS, and the certificates that both show."""

    url: str = Field(pattern=r"^https://[^\s/?#@]+/?$")
    """Where it listens: `https://host:port`."""
    ca: str
    """PEM file of the authority that signed the worker's certificate, relative to the service's project."""
    certificate: str
    """PEM file of the certificate that the service shows."""
    key: str
    """PEM file of its private key."""


class DagsterAddress(SpecModel):
    """Another Dagster instance, and the job of it that runs what is ordered."""

    url: str = Field(pattern=r"^https?://[^\s/?#@\\]+(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?$")
    """Its webserver, with the path before `/graphql` if there is one: `https://dagster.example`."""
    location: str = Field(min_length=1)
    """Name of the code location."""
    repository: str = Field(default="__repository__", min_length=1)
    """Name of the repository in it."""
    job: str = Field(default="gobblin_order", min_length=1)
    """The Dagster job that runs orders; `order_definitions` makes it."""
    token_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Names the variable of the service's environment with the token that each request shows."""
    token_header: str = Field(default="Authorization", pattern=r"^[A-Za-z0-9-]+$")
    """Header of the token: as `Bearer TOKEN` in `Authorization`, alone in another one."""
    ca: str | None = None
    """PEM file of the authority that signed the webserver's certificate, relative to the service's project; default:
    those that the machine trusts."""

    @model_validator(mode="after")
    def _keeps_its_token(self) -> DagsterAddress:
        is_here = urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")
        if self.token_env is not None and self.url.startswith("http:") and not is_here:
            raise ValueError("`token_env` needs a URL that begins with https://, or anybody on the way reads the token")
        return self


class TopologySpec(SpecModel):
    """An executor and what it can do.

    Source: gobblin-runtime `TopologySpec`, `SpecExecutor.getCapabilities`.
    """

    type: Literal["embedded", "store", "kafka", "rest", "dagster"] = "embedded"
    """How jobs reach it: `embedded` is the worker process of the service itself, `dagster` another Dagster instance;
    the others are workers (`gobblin worker --executor NAME`) that poll the service's database (`store`), read a topic
    (`kafka`) or listen for the service (`rest`)."""
    jobs_at_once: int | None = Field(default=None, ge=1)
    """Jobs that it has side by side at most; more wait in the service, in order. Default: as many as there are. For
    `embedded`, `service.jobs_at_once` of each node says it."""
    workers: int | None = Field(default=None, ge=1, le=64)
    """Worker processes that the service keeps running for it beside the node that leads, in the service's own project;
    for the type `store`. Default: workers are started by others."""
    rows_per_second: float | None = Field(default=None, gt=0)
    """Rows that its jobs together read in a second at most: each gets the same part, one for each of `jobs_at_once`."""
    bytes_per_second: float | None = Field(default=None, gt=0)
    """Bytes of input that its jobs together read in a second at most, in the same parts."""
    kafka: KafkaTopics | None = None
    """Brokers and topics, for the type `kafka`."""
    rest: RestAddress | None = None
    """Address and certificates, for the type `rest`."""
    dagster: DagsterAddress | None = None
    """Webserver, code location and token, for the type `dagster`."""
    state: str = ""
    """Names the state store in which its jobs keep their watermarks, if it is not the one of the service's project.
    Executors of one edge need the same one."""
    description: str = ""
    """What it is, for people."""
    capabilities: tuple[CapabilitySpec, ...] = Field(min_length=1)
    """Kinds of movement that it can do, by types of nodes."""
    enabled: bool = True
    """Whether jobs are given to it."""

    @model_validator(mode="after")
    def _has_its_transport(self) -> TopologySpec:
        transports = {
            "kafka": (self.kafka, "kafka: {brokers: ..., orders: ..., reports: ...}"),
            "rest": (self.rest, "rest: {url: ..., ca: ..., certificate: ..., key: ...}"),
            "dagster": (self.dagster, "dagster: {url: ..., location: ...}"),
        }
        for kind, (given, wanted) in transports.items():
            if kind == self.type and given is None:
                raise ValueError(f"the type {kind} needs `{wanted}`")
            if kind != self.type and given is not None:
                raise ValueError(f"`{kind}` is for executors of the type {kind}")
        if self.workers is not None and self.type != "store":
            raise ValueError(f"`workers` is for executors of the type store, not {self.type}")
        if self.type == "embedded" and self.jobs_at_once is not None:
            raise ValueError("set `service: {jobs_at_once: ...}` in gobblin.yaml for executors of the type embedded")
        is_slowed = self.rows_per_second is not None or self.bytes_per_second is not None
        if is_slowed and self.jobs_at_once is None:
            raise ValueError(
                "rows_per_second and bytes_per_second are divided by `jobs_at_once`, which is missing; executors of "
                "the type embedded have neither: set `flow.rowsPerSecond` of their flows"
            )
        return self

    def queue(self, name: str) -> str:
        """Return the name under which the executor takes orders."""
        return self.type if self.type == "embedded" else name

    @property
    def takes_keys(self) -> bool:
        """Whether it takes jobs as keys of Gobblin's."""
        return self.kafka is not None and self.kafka.format == "gobblin"

    def can_move(self, source: str, destination: str) -> bool:
        """Tell whether it has a capability for these types of nodes."""
        return any(one.covers(source, destination) for one in self.capabilities)


class EdgeSpec(SpecModel):
    """A way from one node to another: a template makes the job that moves the data.

    Source: gobblin-service `FlowEdge`, `BaseFlowEdge`.
    """

    source: str
    """The node that it begins at."""
    destination: str
    """The node that it leads to."""
    template: str
    """URI of the template, such as `FS:///edges/files-to-lake.template`."""
    executors: tuple[str, ...] | None = None
    """Executors that may run it, the preferred one first; default: each one that has the capability, by name."""
    cost: float = Field(default=1, ge=0, le=1e9)
    """What the way costs; of several ways the cheapest is taken."""
    enabled: bool = True
    """Whether flows may go this way."""
    input: DatasetSpec = DatasetSpec()
    """Datasets that it takes."""
    output: DatasetSpec = DatasetSpec()
    """What datasets are after it; `any` leaves a field as it was."""
    values: dict[str, str] = Field(default_factory=dict)
    """Values for parameters of the template; flows cannot change them."""
    description: str = ""
    """What it does, for people."""

    @field_validator("executors")
    @classmethod
    def _names_one(cls, executors: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if executors == ():
            raise ValueError("names no executor; leave the key out to take each one that has the capability")
        return executors


class TopologyFile(SpecModel):
    """One file of a topology; several files of a folder make one topology."""

    nodes: dict[str, NodeSpec] = Field(default_factory=dict)
    """Data nodes by name."""
    edges: dict[str, EdgeSpec] = Field(default_factory=dict)
    """Edges by name."""
    executors: dict[str, TopologySpec] = Field(default_factory=dict)
    """Executors by name."""


Part = NodeSpec | EdgeSpec | TopologySpec
"""What a name in a topology stands for."""

KINDS: Mapping[str, type[NodeSpec | EdgeSpec | TopologySpec]] = {
    "nodes": NodeSpec,
    "edges": EdgeSpec,
    "executors": TopologySpec,
}
"""Keys of a topology file, and what stands below each."""
