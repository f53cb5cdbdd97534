"""What may happen to a project, and what must be true of it after that."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.property.targets.model import KINDS, REJECTED_EVERY, Held, Row, Start
from tests.property.targets.venture import IDS, NAMES, Broken, Venture, engine_of
from tests.property.targets.world import World

LOOKS = (
    "verify",
    "verify --checksum",
    "check",
    "commit list",
    "commit recover --dry-run",
    "startpoint list",
    "startpoint history",
    "clean --dry-run",
    "compact ev --dry-run",
    "quarantine list",
    "state runs",
)
FORBIDDEN = ("run", "plan", "startpoint list", "commit list", "compact ev", "clean", "verify", "state list")
NOTHING: dict[str, list[str]] = {"paths": [], "environment": [], "modules": [], "hosts": [], "sources": []}


class Storm:
    """A project among commands and kills. After kills several states are possible, until targets are looked at."""

    def __init__(self, root: Path, world: World, seed: int) -> None:
        self.here = Venture(root, world, seed)
        self.dice, self.rows, self.kinds = self.here.dice, self.here.rows, self.here.kinds
        self.rejects = self.here.choice.rejects
        self.has_numbers = self.here.choice.source != "files"
        """Whether positions are numbers of rows."""
        self.possible = {name: {Held(tuple(() for _ in self.kinds))} for name in self.rows}
        self.snapshots: dict[tuple[str, int], Held] = {}
        self.waits = False
        """Whether a commit may be unfinished."""
        self.early = False
        """Whether a startpoint was set while a commit was unfinished."""
        self.leaves_files = False
        """Whether files of a commit that was given up may lie in the output."""
        self.gave_up: set[str] = set()
        """Datasets of which a commit was given up when some of its steps were done: their next run may be refused."""
        self.killed: defaultdict[str, list[list[Row]]] = defaultdict(list)
        """What there was when runs were killed that no run has finished since."""
        self.exports: list[Path] = []

    def blow(self, steps: int) -> list[str]:
        """Let things happen, and see at the end that all is there and nothing is left to do; return what was done."""
        acts: list[Callable[[], None]] = [self.add] * 4 + [self.add_and_run] * 4 + [self.run] * 2
        acts += [self.add_and_die] * 6 + [self.die_in_command] * 2 + [self.recover] * 2 + [self.abandon] * 3
        acts += [self.select] * 2 + [self.startpoint] * 6 + [self.remove_startpoint] + [self.change_state] * 2
        acts += [self.look] * 3 + [self.tidy] * 2 + [self.export] * 2 + [self.import_old, self.restore, self.move_store]
        acts += [self.replay] * 2 + [self.rollback] * 3 + [self.forbid, self.create_again] + [self.block] * 4
        try:
            self.add_and_run()
            for _ in range(steps):
                self.dice.choice(acts)()
            self.run()
            self.look()
            self.here.call("verify", self._ends)
        except Exception as error:
            said = str(error) if isinstance(error, Broken) else traceback.format_exc()
            called = "\n  ".join(self.here.called)
            raise Broken(f"seed {self.here.seed} in {self.here.root}: {said}\nafter\n  {called}") from error
        return self.here.called

    # -- the model -----------------------------------------------------------------------------------------------------
    def _each(self, name: str, change: Callable[[Held], Held], code: int = 0) -> None:
        """Change what is possible as a command did that ended with this code; one that was killed may have."""
        after = {change(held) for held in self.possible[name]}
        if code in (0, -signal.SIGKILL):
            self.possible[name] = after if code == 0 else after | self.possible[name]

    def _read(self, name: str) -> Callable[[Held], Held]:
        return lambda held: held.read(self.rows[name], self.kinds, self.rejects)

    def _gave_up(self, name: str) -> None:
        """Note that some branches may have the rows of a commit that will never be."""
        self.gave_up.add(name)
        self.leaves_files = True
        for held in [*self.possible[name]]:
            for rows in (*self.killed[name], self.rows[name]):
                self.possible[name] |= {*held.partly(rows, self.kinds, self.rejects)}

    def _unfinished(self) -> None:
        """Note that each dataset may or may not have a commit with all that was new."""
        self.waits = True
        for name in self.rows:
            self.killed[name].append([*self.rows[name]])
            self._each(name, self._read(name), -signal.SIGKILL)

    def compare(self) -> None:
        """Leave of the possible states those that agree with targets and positions."""
        found = [self.here.found(number) for number in range(len(self.kinds))]
        listed = {self.here.name(one["dataset"]): one for one in self.here.call("state list")["datasets"]}
        for name in self.rows:
            mine = [_of_dataset(one, NAMES.index(name)) for one in found]
            position = int(listed[name]["watermark"] or 0) if name in listed and self.has_numbers else 0
            fits = {
                held
                for held in self.possible[name]
                if self._rows_of(held) == mine and (not self.has_numbers or held.position == position)
            }
            if not fits:
                raise Broken(f"{name} at {position}:\n" + "\n".join(self._differences(name, mine)))
            self.possible[name] = fits
            if len(fits) == 1 and name in listed:
                self.snapshots[name, listed[name]["snapshot"]] = next(iter(fits))

    def _rows_of(self, held: Held) -> list[Counter[Any]]:
        return [KINDS[kind].rows_of(rows) for kind, rows in zip(self.kinds, held.branches, strict=True)]

    def _differences(self, name: str, mine: list[Counter[Any]]) -> Iterator[str]:
        for held in self.possible[name]:
            yield f"  could be at {held.position} with {held.start}"
            for kind, wanted, there in zip(self.kinds, self._rows_of(held), mine, strict=True):
                yield f"    {kind}: lost {dict(wanted - there)}, more {dict(there - wanted)}"

    # -- runs ----------------------------------------------------------------------------------------------------------
    def add(self) -> None:
        self.here.add_to(self.here.any_name())

    def add_and_run(self) -> None:
        self.add()
        self.run()

    def run(self) -> None:
        code, said = self.here.try_call("run", (0, 1, 4))
        datasets = [one for job in said["jobs"] for one in job["datasets"]]
        bad = [one for one in datasets if one["outcome"] not in ("committed", "idle")]
        if code or bad:
            names = {self.here.name(one["dataset"]) for one in bad}
            if self.early and any("startpoint" in str(one["failures"]) for one in bad):
                self._without_startpoints()
                return
            if not names or (not names <= self.gave_up and self.here.choice.scope == "dataset") or not self.gave_up:
                raise Broken(f"a run failed: {code}, {bad or said}")
            self._go_on_after(bad)
            return
        for name in self.rows:
            self._each(name, self._read(name))
        self.waits = self.early = False
        self.gave_up.clear()
        self.killed.clear()
        self.compare()

    def _without_startpoints(self) -> None:
        """Remove startpoints that go back into what a commit published that was unfinished when they were set."""
        self._unfinished()
        for name in self.rows:
            if any(held.start for held in self.possible[name]):
                self.here.call(f"startpoint remove {self.here.urn(name)} --yes", (0, 2))
                self._each(name, lambda held: dataclasses.replace(held, start=None))
        self.early = False
        self.run()

    def _go_on_after(self, refused: list[Any]) -> None:
        """Do what messages say after a commit was given up: give up what waits, and say where to go on."""
        self.here.called.append(f"refused: {[(one['dataset'], one['failures']) for one in refused]}")
        self._unfinished()
        for _ in range(2):  # what cannot be undone is quarantined first
            for one in self.here.call("commit list")["sequences"]:
                self.here.call(f"commit abandon {one['sequence']} --yes", (0, 1))
                self._gave_up(self.here.name(one["dataset"]))
        listed = {self.here.name(one["dataset"]): one["watermark"] for one in self.here.call("state list")["datasets"]}
        for name in sorted(self.gave_up):
            low = (listed.get(name) or "0") if self.has_numbers else "oldest"
            self.here.call(f"startpoint set {self.here.urn(name)} {low} --on-rewind append -m x --yes")
            start = Start(0 if low == "oldest" else int(low), None, "append")
            self._each(name, lambda held, start=start: dataclasses.replace(held, start=start))  # type: ignore[misc]
        self.gave_up.clear()
        self.run()

    def select(self) -> None:
        if self.waits or self.gave_up or self.here.choice.scope == "job":
            return
        name = self.here.any_name()
        self.here.call(f"run --select {self.here.urn(name)}", (0,) if self.rows[name] else (0, 2))
        self._each(name, self._read(name))
        self.compare()

    def add_and_die(self) -> None:
        """Add rows, and kill the run that reads them."""
        for _ in range(self.dice.choice([1, 1, 2, 3])):
            self.add()
        if self.here.world.processes is not None:
            at = self.dice.choice(["", f" --crash-at commit:{self.dice.randint(1, 4)}"])
            self.here.try_call(f"run{at}", (0, 1, 4), kill_after=None if at else self._moment())
            self._unfinished()

    def die_in_command(self) -> None:
        if self.here.world.processes is not None:
            words = self.dice.choice(["clean", "commit recover", "compact ev", "verify --repair"])
            self.here.try_call(words, (0, 1, 2, 4), kill_after=self._moment())

    def _moment(self) -> float:
        return self.dice.uniform(0.1, 1.1) * self.here.duration

    def _sometimes(self) -> float | None:
        """Return when to kill a command, or None."""
        return self._moment() if self.here.world.processes is not None and self.dice.random() < 0.3 else None

    # -- what a person says --------------------------------------------------------------------------------------------
    def recover(self) -> None:
        self.here.try_call("commit recover", (0, 1, 4) if self.gave_up else (0,))

    def abandon(self) -> None:
        for one in self.here.call("commit list")["sequences"]:
            code, _ = self.here.try_call(f"commit abandon {one['sequence']} --yes")
            if code == 1 or one["state"] == "quarantined":
                self._gave_up(self.here.name(one["dataset"]))

    def _position(self, name: str) -> int:
        return self.dice.choice([0, *(row.seq for row in self.rows[name]), *(row.seq for row in self.rows[name][-3:])])

    def startpoint(self) -> None:
        name = self.here.any_name()
        if not self.has_numbers or not self.rows[name]:
            return
        low, rewind = self._position(name), self.dice.choice(["refuse", "append", "replace", "upsert"])
        until = self._position(name) if self.dice.random() < 0.3 else None
        end = "" if until is None else f" --until {until}"
        words = f"startpoint set {self.here.urn(name)} {low} --on-rewind {rewind}{end} -m x --yes"
        code, said = self.here.try_call(words)
        stored = isinstance(said, dict) and said.get("startpoints")
        if code == 0:
            self._each(name, lambda held: dataclasses.replace(held, start=Start(low, until, rewind)))
            self.early |= self.waits
        elif stored and self._is_stored(name):
            self.here.called.append(str(said["startpoints"][0]["problem"]))
            raise Broken("a startpoint with a problem was stored")

    def _is_stored(self, name: str) -> bool:
        waiting = {self.here.name(one["dataset"]) for one in self.here.call("startpoint list")["startpoints"]}
        return name in waiting and all(held.start is None for held in self.possible[name])

    def remove_startpoint(self) -> None:
        name = self.here.any_name()
        code, _ = self.here.try_call(f"startpoint remove {self.here.urn(name)} --yes")
        self._each(name, lambda held: dataclasses.replace(held, start=None), code)

    def change_state(self) -> None:
        """Set a watermark, or reset it."""
        name = self.here.any_name()
        starts = [held.start for held in self.possible[name] if held.start is not None]
        if any(start.until is not None for start in starts):
            return  # a run refuses to read a range again that is not behind the watermark any more
        to = self._position(name) if self.has_numbers and self.dice.random() < 0.7 else None
        if any(start.rewind != "append" and start.low < (to or 0) for start in starts):
            return  # it was ahead of the watermark, and would become a rewind that a run may refuse
        what = f"reset {self.here.urn(name)}" if to is None else f"set {self.here.urn(name)} {to}"
        code, _ = self.here.try_call(f"state {what} -m x --yes", kill_after=self._sometimes())
        self._each(name, lambda held: dataclasses.replace(held, position=to or 0), code)

    def restore(self) -> None:
        self.here.try_call(f"state restore {self.here.urn(self.here.any_name())} --yes")

    def export(self) -> None:
        """An export is equal to its store, and importing it changes nothing."""
        if self.waits or self.gave_up:
            return
        file = self.here.root / f"export{len(self.exports)}.jsonl"
        file.write_text(self.here.call("state export"))
        self.here.call(f"state diff {file}")
        self.here.call(f"state import {file} --yes")
        self.exports.append(file)

    def import_old(self) -> None:
        """An export that is older than its store changes nothing there."""
        if self.exports and not self.waits and not self.gave_up:
            old = self.dice.choice(self.exports)
            self.here.try_call(f"state diff {old}")
            self.here.try_call(f"state import {old} --yes", (0, 1, 2, 4))
            self.compare()

    def move_store(self) -> None:
        """Bring all states into an empty store of any kind."""
        if self.waits or self.gave_up:
            return
        file = self.here.root / "moved.jsonl"
        file.write_text(self.here.call("state export"))
        stores = ["sqlite", "files", *(one for one in self.here.world.places if one != "mariadb")]
        self.here.project["state"] = self.here.new_store(self.dice.choice(stores))
        self.here.write_project(self.here.project)
        self.here.call(f"state import {file} --yes")
        self.exports.clear()

    def rollback(self) -> None:
        name = self.here.any_name()
        code, said = self.here.try_call(f"show {self.here.urn(name)}")
        if self.waits or self.gave_up or code or not said["snapshots"]:
            return
        to = self.dice.choice(said["snapshots"])["snapshot"]
        if (held := self.snapshots.get((name, to))) is None:
            return
        words = f"rollback {self.here.urn(name)} --to {to} -m x --yes"
        code, _ = self.here.try_call(words, kill_after=self._sometimes())
        self._each(name, lambda now: dataclasses.replace(held, start=now.start), code)
        self.waits = code < 0
        if code == 0:
            self.compare()

    def replay(self) -> None:
        """Send rejected rows again, which may pass from now on."""
        waiting = any(held.rejected for each in self.possible.values() for held in each)
        if self.waits or self.gave_up or not waiting or "replace_partitions" in self.kinds:
            return
        if self.rejects and self.dice.random() < 0.5:
            self.here.job["row_policies"] = []
            self.here.write_job()
            self.rejects = False
            self.here.called.append("nothing is rejected any more")
        name = self.here.any_name()
        code, _ = self.here.try_call(f"quarantine replay {self.here.urn(name)} --yes", kill_after=self._sometimes())
        if not self.rejects:
            self._each(name, lambda held: held.replayed(self.kinds), code)
        self.waits = code < 0
        if code >= 0:
            self.compare()

    def tidy(self) -> None:
        words = self.dice.choice(["clean", "compact ev --target-size 1MB", "verify --repair"])
        self.here.try_call(words, (0, 1, 2, 4) if self.waits or self.gave_up else self._ends)
        if not self.waits:
            self.compare()

    @property
    def _ends(self) -> tuple[int, ...]:
        """Exit codes of commands that may name files in no snapshot."""
        return (0, 1) if self.leaves_files else (0,)

    # -- what commands say ---------------------------------------------------------------------------------------------
    def look(self) -> None:
        words = self.dice.choice(LOOKS)
        if self.waits or self.gave_up:
            self.here.try_call(words, (0, 1, 2, 3, 4))
            return
        self.here.call(words, self._ends)
        for one in self.here.call("plan")["jobs"][0]["datasets"]:
            name = self.here.name(one["dataset"])
            wanted = {bool(held.new(self.rows[name])) for held in self.possible[name]}
            if self.here.choice.source == "rest" and one["startpoint"]:
                wanted.add(True)  # only its answers tell whether there is a row between two positions
            if one["problem"] or (one["work_units"] > 0) not in wanted:
                raise Broken(f"a plan that is not true: {one}; {self.possible[name]}")
        if (waiting := self.here.call("commit list")["sequences"]) != []:
            raise Broken(f"nothing should wait: {waiting}")

    # -- faults --------------------------------------------------------------------------------------------------------
    def forbid(self) -> None:
        """Let the lists allow nothing for a while: what is called then changes nothing."""
        self.here.write_project(self.here.project | {"allow": NOTHING})
        starts = f"startpoint set {self.here.urn(self.here.any_name())} oldest --on-rewind append -m x --yes"
        for words in self.dice.sample([*FORBIDDEN, starts], 3):
            code, _ = self.here.try_call(words, (0, 1, 2, 4))
            if code == 0 and words in ("run", "plan", starts):
                raise Broken("a job that is not allowed was taken")
        self.here.write_project(self.here.project)

    def create_again(self) -> None:
        """Drop a table of the source, and make it again; its rows go on behind those that were there."""
        name = self.here.any_name()
        if self.here.engine is None or self.waits or self.gave_up or any(held.start for held in self.possible[name]):
            return
        self.here.create(name)
        self.rows[name].clear()
        self.here.called.append(f"table {name} is made again")
        if self.dice.random() < 0.7:
            self.here.add_to(name)

    def block(self) -> None:
        """Let a target refuse the rows of one dataset for a while."""
        name = self.here.any_name()
        starts = any(held.start for each in self.possible.values() for held in each)
        if self.waits or self.gave_up or not self.rows[name] or starts:
            return
        with self._blocked(name) as is_blocked:
            if not is_blocked:
                return
            self.here.add_to(name)
            new = [row for held in self.possible[name] for row in held.new(self.rows[name])]
            if self.rejects and all(row.seq % REJECTED_EVERY == 0 for row in new):
                return  # nothing comes to the target
            if self.here.try_call("run", (0, 1, 4))[0] == 0:
                raise Broken("a run into a target that refuses rows succeeded")
            self._unfinished()
            for words in self.dice.choice([[], ["run"], ["commit recover"], ["run", "commit recover"]]):
                self.here.try_call(words, (0, 1, 4))
            if self.dice.random() < 0.5:
                self.abandon()
        self.here.try_call("commit recover", (0, 1, 4))

    @contextmanager
    def _blocked(self, name: str) -> Iterator[bool]:
        files = ("append", "merge", "replace", "timestamped")
        chosen = [number for number, kind in enumerate(self.kinds) if kind.startswith("sql") or kind in files]
        number = self.dice.choice(chosen or [0])
        table, folder = self.here.table(number, name), Path(self.here.lake, "n/t", f"b{number}", self.here.urn(name))
        engine = engine_of(self.here.environment["STORM_WAREHOUSE"])
        self.here.called.append(f"{name} is blocked at {number}")
        if self.kinds[number].startswith("sql") and sa.inspect(engine).has_table(table):
            _execute(
                engine, f"alter table {table} rename to aside", f"create view {table} as select distinct * from aside"
            )
            yield True
            _execute(engine, f"drop view {table}", f"alter table aside rename to {table}")
        elif self.kinds[number] in files and folder.is_dir():
            folder.rename(folder.with_name("aside"))
            folder.write_text("in the way")
            yield True
            folder.unlink()
            folder.with_name("aside").rename(folder)
        else:
            yield False
        self.here.called.append("it is free")


def _execute(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as place:
        for statement in statements:
            place.execute(sa.text(statement))


def _of_dataset(rows: Counter[Any], number: int) -> Counter[Any]:
    return Counter({row: times for row, times in rows.items() if _id(row) // IDS == number})


def _id(row: Any) -> int:
    return row.id if isinstance(row, Row) else row[0].id if isinstance(row[0], Row) else int(row[0])


def storm(root: Path, world: World, seed: int, steps: int) -> list[str]:
    """Let a storm blow in a new folder, which stays if something is broken."""
    folder = root / f"storm-{seed}"
    folder.mkdir()
    called = Storm(folder, world, seed).blow(steps)
    shutil.rmtree(folder)
    if told := os.environ.get("STORM_CALLS"):
        with Path(told).open("a") as file:
            file.write("\n".join(["##", *called, ""]))
    return called
