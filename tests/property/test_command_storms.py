"""Commands in random order over each source and publisher: rows as in a model, no stack trace, JSON that parses.

Many more: `python -m tests.property.test_command_storms FIRST COUNT`.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable

from gobblin_dagster.api import open_project
from gobblin_dagster.cli.program import run_command
from gobblin_dagster.testing.inline_runner import InlineRunner

NAMES = ("a", "b")
BY_NAME: dict[str, Any] = {
    "type": "files",
    "path": "in/{dataset}/*.csv",
    "format": {"type": "csv"},
    "new_files": "name",
}
SOURCES: dict[str, dict[str, Any]] = {
    "name": BY_NAME,
    "modified": BY_NAME | {"new_files": "modified"},
    "query": {
        "type": "query",
        "url": "sqlite:///source.db",
        "include": ["main[.](a|b)"],
        "watermark": {"column": "id", "type": "long"},
    },
}
KEY = {"key": ["id"]}
SQL = {"type": "sql_table", "url": "sqlite:///w.db", "table": "t"}
PUBLISHERS: dict[str, dict[str, Any]] = {
    "append": {"type": "append"},
    "timestamped": {"type": "timestamped"},
    "merge": {"type": "merge"} | KEY,
    "delta": {"type": "delta"},
    "delta merge": {"type": "delta", "mode": "merge"} | KEY,
    "sql": SQL,
    "sql upsert": SQL | {"mode": "upsert"} | KEY,
}
LOOKS = (
    "state list",
    "state show U",
    "state history U",
    "state runs",
    "show U",
    "startpoint list",
    "commit list --all",
    "quarantine list",
    "quarantine show U",
    "check",
    "clean --dry-run",
    "compact ev --dry-run",
    "rollback U --to 1 --dry-run",
    "commit recover",
    "state reset U -m x --dry-run",
    "quarantine replay U --dry-run",
    "run --dry-run",
    "plan",
)


@dataclass
class Storm:
    """A project, and what its place should hold."""

    root: Path
    source: str
    publisher: str
    seed: int
    count: int = 0
    rows: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in NAMES})
    unread: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in NAMES})
    expected: Counter[int] = field(default_factory=Counter)
    called: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.source} {self.publisher} {self.seed}")
        self.rejects = self.random.random() < 0.5
        policy = {"name": "odd", "type": "sql", "rule": "id % 10 <> 7", "on_violation": "quarantine"}
        job = {
            "job": "ev",
            "source": SOURCES[self.source],
            "extract": {"namespace": "n", "table": "t"},
            "row_policies": [policy] if self.rejects else [],
            "publisher": PUBLISHERS[self.publisher],
            "commit": {"scope": self.random.choice(["dataset", "job"])},
            "output": {"path": "lake"},
        }
        (self.root / "jobs").mkdir()
        (self.root / "gobblin.yaml").write_text("project: storm\n")
        (self.root / "jobs/ev.yaml").write_text(json.dumps(job))
        with closing(sqlite3.connect(self.root / "source.db")) as source:
            for name in NAMES:
                source.execute(f"create table {name} (id integer not null)")

    def call(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command, half of the times with `--output json`."""
        wants_json = self.random.random() < 0.5
        given = [*arguments, *(["--output", "json"] if wants_json else [])]
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run_command(["-C", str(self.root), *given])
        self.called.append(f"{' '.join(given)} -> {code}")
        said = f"{out.getvalue()}{err.getvalue()}"
        assert code in codes, self.told(said)
        assert "Traceback" not in said, self.told(said)
        assert "is a bug" not in said, self.told(said)
        if wants_json:
            json.loads(out.getvalue())
        return out.getvalue() if not wants_json else ""

    def told(self, said: object) -> str:
        return f"{self.source} x {self.publisher}, seed {self.seed}: {said} after {'; '.join(self.called)}"

    # -- what may happen -----------------------------------------------------------------------------------------------
    def add(self) -> None:
        name, ids = self.random.choice(NAMES), list(range(self.count, self.count + self.random.randint(1, 12)))
        self.count += len(ids)
        file = self.root / "in" / name / f"{ids[0]:06}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{one}\n" for one in ["id", *ids]))
        os.utime(file, (self.count, self.count))
        with closing(sqlite3.connect(self.root / "source.db")) as source:
            source.executemany(f"insert into {name} values (?)", [(one,) for one in ids])
            source.commit()
        self.rows[name] += ids
        self.unread[name] += ids
        self.called.append(f"add {len(ids)} to {name}")

    def run(self) -> None:
        self.call("run")
        new = Counter(one for ids in self.unread.values() for one in ids if not (self.rejects and one % 10 == 7))
        self.expected = self.expected | new if "key" in PUBLISHERS[self.publisher] else self.expected + new
        self.unread = {name: [] for name in NAMES}
        self.compare()

    def look(self) -> None:
        words = [self.urn() if word == "U" else word for word in self.random.choice(LOOKS).split()]
        self.call(*words, codes=(0, 1, 2))

    def again(self) -> None:
        """Let the next run read all rows of a dataset again."""
        if self.unread != {name: [] for name in NAMES} or not all(self.rows.values()):
            return
        name = self.random.choice(NAMES)
        how = ("state", "reset") if self.random.random() < 0.5 else ("startpoint", "set")
        more = ("oldest", "--on-rewind", "append") if how[0] == "startpoint" else ()
        self.call(*how, self.urn(name), *more, "-m", "x", "--yes")
        self.unread[name] = list(self.rows[name])

    def tidy(self) -> None:
        self.call(*self.random.choice([("clean",), ("compact", "ev"), ("verify", "--repair")]), codes=(0, 1, 2))
        self.compare()

    def urn(self, name: str = "") -> str:
        name = name or self.random.choice(NAMES)
        return f"main.{name}" if self.source == "query" else name

    # -- what the place holds ------------------------------------------------------------------------------------------
    def compare(self) -> None:
        found = Counter(self.found())
        assert found == self.expected, self.told(f"lost {self.expected - found}, more {found - self.expected}")

    def found(self) -> list[int]:
        if not self.expected:
            return []
        if self.publisher.startswith("sql"):
            with closing(sqlite3.connect(self.root / "w.db")) as place:
                return [one for (one,) in place.execute("select id from t")]
        if self.publisher.startswith("delta"):
            ids: list[int] = DeltaTable(self.root / "lake/n/t/main").to_pyarrow_table()["id"].to_pylist()
            return ids
        with open_project(self.root) as project:
            published = [project.load_published(state.dataset_urn).to_arrow() for state in project.state.list("ev")]
        return [one for data in published for one in data.to_table()["id"].to_pylist()]

    def blow(self, steps: int) -> None:
        """Run random commands, and see at the end that all is there and nothing is left to do."""
        acts: list[Callable[[], None]] = [self.add, self.add, self.run, self.run, self.look, self.look, self.again]
        self.add()
        for _ in range(steps):
            self.random.choice([*acts, self.tidy])()
        self.run()
        assert "0 datasets with new data" in (self.call("plan") or "0 datasets with new data"), self.told("work left")
        self.call("verify")


def _inline(*settings: object) -> InlineRunner:
    return InlineRunner()


def storm(root: Path, source: str, publisher: str, seed: int, steps: int) -> None:
    with mock.patch("gobblin_dagster.cli.spark.LazySparkRunner", _inline):
        Storm(root, source, publisher, seed).blow(steps)


ALL = list(itertools.product(SOURCES, PUBLISHERS))


def test_commands_in_any_order(tmp_path: Path) -> None:
    storm(tmp_path, "name", "append", 0, 3)


@pytest.mark.storm
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("source", "publisher"), ALL)
def test_commands_in_any_order_over_sources_and_publishers(
    tmp_path: Path, source: str, publisher: str, seed: int
) -> None:
    storm(tmp_path, source, publisher, seed, 20)


if __name__ == "__main__":
    first, number = (int(one) for one in sys.argv[1:3])
    for seed, (source, publisher) in itertools.product(range(first, first + number), ALL):
        with tempfile.TemporaryDirectory() as folder:
            storm(Path(folder), source, publisher, seed, 30)
        sys.stdout.write(f"seed {seed}: {source} x {publisher}\n")
