"""A project chosen by dice: its source, the targets of its branches, its state store; and calls of commands."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

import sqlalchemy as sa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from gobblin_dagster.api import open_project
from gobblin_dagster.cli.program import run_command
from tests.property.targets.model import KINDS, REJECTED_EVERY, Row
from tests.property.targets.world import World, without_spark

NAMES = ("a", "b", "c")
IDS = 1000
"""Ids of a dataset begin at its number times this, so that rows of datasets that share a table can be told apart."""
BEGINNING = datetime(2024, 1, 1)
TYPES = {"seq": "int64", "id": "int64", "op": "string", "part": "int64"}
SELECT = f"seq, id, op, part, timestamp '{BEGINNING}' + to_seconds(seq) as at"
ITEMS = "id, seq, op, [{'n': seq}, {'n': seq + 1}][1:seq % 3] as items"
POLICY = {"name": "odd", "type": "sql", "rule": f"seq % {REJECTED_EVERY} <> 0", "on_violation": "quarantine"}
BY_SEQ = {"column": "seq", "type": "long"}


class Broken(AssertionError):
    """Something is not as the model says."""


@dataclass
class Choice:
    """What the dice chose."""

    source: str
    kinds: list[str]
    warehouse: str
    output: str
    store: str
    scope: str
    is_limited: bool
    rejects: bool

    @classmethod
    def of(cls, dice: random.Random, world: World) -> Choice:
        servers = [*world.places]
        databases = [one for one in servers if one in ("postgres", "mariadb")]
        kinds = [dice.choice([*KINDS]) for _ in range(dice.choice([1, 1, 2, 3]))]
        warehouse = dice.choice(["sqlite", *databases])
        if warehouse == "mariadb":  # which has no upsert
            kinds = ["sql" if kind == "sql upsert" else kind for kind in kinds]
        outputs = ["local", "local", *({"s3", "hdfs"} & {*servers})]
        if any(kind.startswith(("delta", "iceberg")) for kind in kinds):
            outputs = [
                "local",
                *(["s3"] if "s3" in servers and not any(k.startswith("iceberg") for k in kinds) else []),
            ]
        source = dice.choice(["sqlite", "sqlite", "rest", "rest", "files", *databases])
        return cls(
            "spark" if world.has_spark else source,
            kinds,
            warehouse,
            dice.choice(sorted(outputs)),
            dice.choice(["sqlite", "files", *(one for one in servers if one != "mariadb")]),
            dice.choice(["dataset", "dataset", "job"]),
            dice.random() < 0.3,
            dice.random() < 0.4,
        )


class Venture:
    """A project in a folder, its rows, and what was called."""

    def __init__(self, root: Path, world: World, seed: int) -> None:
        self.root, self.world, self.seed = root, world, seed
        self.dice = random.Random(seed)
        self.choice = Choice.of(self.dice, world)
        self.kinds = self.choice.kinds
        self.rows: dict[str, list[Row]] = {name: [] for name in NAMES[: self.dice.randint(1, 3)]}
        self.called = [f"{self.choice}, {[*self.rows]}"]
        self.count = 0
        self.duration = 0.5
        self.environment = {"STORM_WAREHOUSE": self._database(self.choice.warehouse, "warehouse")}
        lake = "lake" if self.choice.output == "local" else world.places[self.choice.output]()
        self.lake = lake if "://" in lake else f"{root}/{lake}"
        self.engine: sa.Engine | None = None
        self.schema = ""
        self.job = {
            "job": "ev",
            "source": self._source(),
            "extract": {"namespace": "n", "table": "t", "delta_fields": ["seq"]},
            "converters": [{"type": "sql", "select": SELECT}],
            "row_policies": [POLICY] if self.choice.rejects else [],
            "fork": {"branches": [self._branch(f"b{number}", kind) for number, kind in enumerate(self.kinds)]},
            "commit": {"scope": self.choice.scope},
            "output": {"path": lake},
        }
        self.project: dict[str, Any] = {"project": "storm", "state": self.new_store(self.choice.store)}
        if self.choice.is_limited:
            paths = [str(root), *([self.lake] if "://" in self.lake else [])]
            hosts = ["127.0.0.1", "localhost"]
            self.project["allow"] = {"paths": paths, "environment": ["STORM_*"], "modules": [], "hosts": hosts}
        (root / "jobs").mkdir()
        self.write_job()
        self.write_project(self.project)

    # -- files of the project ------------------------------------------------------------------------------------------
    def write_job(self) -> None:
        (self.root / "jobs/ev.yaml").write_text(json.dumps(self.job, indent=1))

    def write_project(self, project: dict[str, Any]) -> None:
        (self.root / "gobblin.yaml").write_text(json.dumps(project))

    def new_store(self, kind: str) -> str:
        if kind in ("s3", "hdfs"):
            return f"files:{self.world.places[kind]()}/state"
        if kind == "files":
            return f"files:.gobblin/state{len(self.called)}"
        name = f"STORM_STATE{len(self.called)}"
        self.environment[name] = self._database(kind, f".gobblin/state{len(self.called)}")
        return f"${{{name}}}"

    def _database(self, kind: str, name: str) -> str:
        if kind != "sqlite":
            return self.world.places[kind]()
        return f"sqlite:///{name}.db" if "/" in name else f"sqlite:///{self.root}/{name}.db"

    def _source(self) -> dict[str, Any]:
        kind, files = self.choice.source, self.root / "in"
        for name in self.rows:
            (files / name).mkdir(parents=True)
        if kind == "rest":
            self.world.api.rows[str(self.seed)] = self.rows
            cursor = {"column": "seq", "low_param": "since", "newest_params": {"sort": "desc"}, "lag_s": 0}
            lists = {name: f"/{self.seed}/{name}" for name in self.rows}
            paged = {"records": "data", "paging": {"type": "page"}, "cursor": cursor}
            return {"type": "rest", "url": self.world.api.url, "datasets": lists, "columns": TYPES} | paged
        if kind == "spark":
            columns = "seq bigint, id bigint, op string, part bigint"
            read = {"format": "json", "path": "in/{dataset}", "columns": columns, "watermark": BY_SEQ}
            return {"type": "spark", "datasets": [*self.rows]} | read
        if kind == "files":
            read = {"format": {"type": "jsonl", "columns": TYPES}, "new_files": "name"}
            return {"type": "files", "path": "in/{dataset}/*.jsonl"} | read
        url = self.environment["STORM_SOURCE"] = self._database(kind, "source")
        self.engine = engine_of(url)
        self.schema = {"sqlite": "main", "postgres": "public"}.get(kind) or str(sa.make_url(url).database)
        for name in self.rows:
            self.create(name)
        return {"type": "query", "url": "${STORM_SOURCE}", "include": [f"{self.schema}[.][abc]"], "watermark": BY_SEQ}

    def _branch(self, name: str, kind: str) -> dict[str, Any]:
        publisher = dict(KINDS[kind].publisher)
        branch: dict[str, Any] = {"name": name, "publisher": publisher}
        if publisher["type"] == "sql_table":
            publisher["table"] = f"{name}_{{dataset}}"
        if publisher["type"] == "iceberg":
            publisher |= {"table": f"storm.{name}", "catalog": self._catalog}
        if publisher["type"] == "delta" and self.choice.output == "s3":
            publisher["storage_options"] = _delta_options()
        if kind == "console":
            branch["writer"] = {"type": "console"}
        if kind in ("append", "timestamped"):
            branch["writer"] = {"type": self.dice.choice(["parquet", "parquet", "orc", "jsonl", "csv"])}
        if kind == "replace_partitions":
            branch["writer"] = {"type": "parquet", "partition_by": ["part"], "keep_partition_columns": True}
        if kind.endswith("child"):
            branch["converters"] = [{"type": "sql", "select": ITEMS}]
        return branch

    @property
    def _catalog(self) -> dict[str, str]:
        where = f"{self.root}/catalog.db"
        return {"type": "sql", "uri": f"sqlite:///{where}", "warehouse": f"file://{self.root}/warehouse"}

    # -- names ---------------------------------------------------------------------------------------------------------
    def urn(self, name: str) -> str:
        return f"{self.schema}.{name}" if self.engine else name

    def name(self, urn: str) -> str:
        return urn.rsplit(".", 1)[-1]

    def table(self, number: int, name: str) -> str:
        return f"b{number}_{self.urn(name)}".replace(".", "_")

    def any_name(self) -> str:
        return self.dice.choice([*self.rows])

    # -- rows of the source --------------------------------------------------------------------------------------------
    def create(self, name: str) -> None:
        """Make a table of the source; one that is there is dropped."""
        assert self.engine is not None
        columns = "seq bigint not null, id bigint not null, op varchar(1) not null, part bigint not null"
        with self.engine.begin() as source:
            source.execute(sa.text(f"drop table if exists {name}"))
            source.execute(sa.text(f"create table {name} ({columns})"))

    def add_to(self, name: str) -> None:
        new = []
        for _ in range(self.dice.choice([1, 2, 3, 8])):
            self.count += 1
            key = NAMES.index(name) * IDS + self.dice.randrange(6)
            new.append(Row(self.count, key, self.dice.choice("UUUD"), self.dice.randrange(3)))
        if self.engine is not None:
            with self.engine.begin() as source:
                insert = sa.text(f"insert into {name} values (:seq, :id, :op, :part)")
                source.execute(insert, [row._asdict() for row in new])
        else:
            file = self.root / "in" / name / f"{new[0].seq:06}.jsonl"
            file.write_text("".join(json.dumps(row._asdict()) + "\n" for row in new))
        self.rows[name] += new
        self.called.append(f"add {[tuple(row) for row in new]} to {name}")

    # -- commands ------------------------------------------------------------------------------------------------------
    def call(self, words: str, codes: tuple[int, ...] = (0,), *, kill_after: float | None = None) -> Any:
        """Run a command; return the document that it printed, or its text, and None if it was killed."""
        return self.try_call(words, codes, kill_after=kill_after)[1]

    def try_call(
        self, words: str, codes: tuple[int, ...] = (0, 1, 2), *, kill_after: float | None = None
    ) -> tuple[int, Any]:
        """Run a command; return its exit code too."""
        is_text = words == "state export"
        given = [*words.split(), *([] if is_text else ["--output", "json"])]
        began = time.monotonic()
        if self.world.processes is not None and (kill_after is not None or "--crash-at" in words):
            out_file, err_file = self.root / "out", self.root / "err"
            out_file.touch()  # a process may be killed before it writes
            err_file.touch()
            ended = self.world.run(self.root, given, self.environment, kill_after)
            said, errors = out_file.read_text(), err_file.read_text()
            if ended is None:
                raise Broken(f"{words} hangs")
            code = ended
        else:
            out, err = io.StringIO(), io.StringIO()
            runner = nullcontext() if self.choice.source == "spark" else without_spark()
            with redirect_stdout(out), redirect_stderr(err), runner, mock.patch.dict(os.environ, self.environment):
                code = run_command(["-C", str(self.root), *given])
            said, errors = out.getvalue(), err.getvalue()
        if words == "run" and kill_after is None:
            self.duration = time.monotonic() - began
        self.called.append(f"{words} -> {code}")
        if code == -signal.SIGKILL:
            return code, None
        if code not in codes or "Traceback" in said + errors or "is a bug" in said + errors:
            raise Broken(f"{words} ended with {code}:\n{said}\n{errors}")
        return code, said if is_text else json.loads(said) if said else errors

    # -- what the targets hold -----------------------------------------------------------------------------------------
    def found(self, number: int) -> Counter[Any]:
        """Return what the target of a branch holds."""
        kind, rows = self.kinds[number], self._rows_of(number)
        if kind.endswith("child"):
            return Counter((row["of_id"], row["of_seq"], row["items_number"]) for row in rows)
        if kind.endswith("history"):
            return Counter((_row(row), _seq(row["valid_from"]), _seq(row["valid_to"])) for row in rows)
        return Counter(_row(row) for row in rows)

    def _rows_of(self, number: int) -> list[dict[str, Any]]:
        publisher = KINDS[self.kinds[number]].publisher["type"]
        if publisher == "sql_table":
            return [row for name in self.rows for row in self._rows_in_table(self.table(number, name))]
        if publisher == "delta":
            options = _delta_options() if self.choice.output == "s3" else None
            with suppress(TableNotFoundError):
                table = DeltaTable(f"{self.lake}/n/t/b{number}", storage_options=options).to_pyarrow_table()
                return list(table.to_pylist())
            return []
        if publisher == "iceberg":
            catalog = load_catalog("default", **self._catalog)
            with suppress(NoSuchTableError):
                return list(catalog.load_table(f"storm.b{number}").scan().to_arrow().to_pylist())
            return []
        rows: list[dict[str, Any]] = []
        with mock.patch.dict(os.environ, self.environment), open_project(self.root) as project:
            for state in project.state.list():
                snapshot = project.load_published(state.dataset_urn)
                if snapshot.rows.get(f"b{number}"):
                    rows += snapshot.to_arrow(f"b{number}").to_table().to_pylist()
        return rows

    def _rows_in_table(self, table: str) -> list[dict[str, Any]]:
        engine = engine_of(self.environment["STORM_WAREHOUSE"])
        if not sa.inspect(engine).has_table(table):
            return []
        with engine.connect() as place:
            return [dict(row) for row in place.execute(sa.text(f"select * from {table}")).mappings()]


def engine_of(url: str) -> sa.Engine:
    """Return an engine that keeps no connection."""
    for name, driver in {"mysql": "mysql+pymysql", "postgresql": "postgresql+psycopg2"}.items():
        url = url.replace(f"{name}:", f"{driver}:")
    return sa.create_engine(url, poolclass=sa.NullPool)


def _delta_options() -> dict[str, str]:
    return {"AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL_S3"], "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}


def _row(row: dict[str, Any]) -> Row:
    return Row(int(row["seq"]), int(row["id"]), row["op"], int(row["part"]))


def _seq(at: datetime | None) -> int | None:
    return None if at is None else round((at.replace(tzinfo=None) - BEGINNING).total_seconds())
