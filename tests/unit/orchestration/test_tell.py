"""Dagster is told commits again that it forgot, or that it shows already if this is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.orchestration import GobblinTranslator
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration.tell import Told, load_translator, open_instance, tell_commits
from tests.unit.orchestration.test_sensors import sweep
from tests.unit.orchestration.world import World

ASSETS = ("test/numbers/all", "test/numbers/masked")
EVERY = ("a", "b/1", "c c")


def tell(world: World, **how: Any) -> Told:
    with closing(world.binding.project.open_store()) as store:
        return tell_commits(world.binding, store, world.instance, **how)


def test_new_instance_is_told_all_and_one_whose_asset_was_wiped_what_it_forgot(world: World) -> None:
    world.run_elsewhere()
    assert tell(world, dry_run=True) == Told(ASSETS, EVERY, (), ())
    assert world.status() == (set(), set())
    assert tell(world) == Told(ASSETS, EVERY, (), ())
    assert world.status() == ({"a", "b/1", "c%20c"}, set()), "partitions were added"
    assert not sweep(world, None).asset_events, "what was told is not told by the sweep"
    world.instance.wipe_assets([world.binding.keys["all"]])
    assert not sweep(world).asset_events, "the sweep does not look at earlier commits again"
    assert tell(world, is_wanted=lambda urn: urn != "a") == Told(ASSETS, EVERY[1:], (), ())
    assert tell(world) == Told(ASSETS, ("a",), EVERY[1:], ())
    assert world.status()[0] == {"a", "b/1", "c%20c"}
    assert [len(world.events("a", branch)) for branch in ("all", "masked")] == [1, 1], "the other branch was shown"
    assert tell(world, again=True, is_wanted=lambda urn: urn == "a").told == ("a",)
    newest, oldest = world.events("a", "masked")
    assert newest[md.COMMIT_ID] == oldest[md.COMMIT_ID]


def test_run_that_goes_on_tells_its_commits_itself(world: World) -> None:
    made = world.run_elsewhere().run_id
    world.instance.add_run(dg.DagsterRun(job_name="numbers_job", run_id=made, status=dg.DagsterRunStatus.STARTED))
    assert tell(world) == Told(ASSETS, (), (), EVERY)


def test_instance_that_was_never_started_is_a_fault_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with pytest.raises(UsageError, match=r"There is no Dagster instance: .*\.dagster is no folder"), open_it(tmp_path):
        raise AssertionError("opened")


@contextmanager
def open_it(root: Path) -> Iterator[None]:
    with open_instance(root):
        yield


def test_translator_of_ones_own_is_found_by_its_name() -> None:
    assert load_translator(None) is None
    assert type(load_translator("gobblin_dagster.orchestration:GobblinTranslator")) is GobblinTranslator


@pytest.mark.parametrize(
    ("target", "said"),
    [("no_such_module:Class", "cannot be imported: No module named 'no_such_module'"), ("os:path", "is no translator")],
)
def test_translator_that_is_none_is_a_fault_of_the_call(target: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_translator(target)
