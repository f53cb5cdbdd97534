"""Alerts of runs: what they tell, of which runs, and how a webhook gets them."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from gobblin_dagster.core.errors import EnvironmentFaultError, TransientError
from gobblin_dagster.demo.project import write_demo
from gobblin_dagster.engine.project import Project
from gobblin_dagster.orchestration import Alert, Webhook, alerts, build_definitions, run_alert_sensor
from tests.services.json_api import Reply, running_api
from tests.unit.orchestration.world import World

FAILURE, SUCCESS = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS


def alert_of(world: World, result: dg.ExecuteInProcessResult, status: dg.DagsterRunStatus = FAILURE) -> Alert | None:
    """Return what the sensor tells of a run that has ended."""
    told: list[Alert] = []
    sensor: Any = run_alert_sensor(world.binding.project, told.append, status=status)
    event = result.get_run_failure_event() if status is FAILURE else result.get_run_success_event()
    run = world.instance.get_run_by_id(result.run_id)
    assert run is not None
    sensor(
        dg.build_run_status_sensor_context(
            sensor_name=sensor.name, dagster_event=event, dagster_instance=world.instance, dagster_run=run
        )
    )
    return told[0] if told else None


def test_failed_run_tells_its_datasets_with_the_reasons(world: World) -> None:
    world.datasets["b/1"]["fail_at"] = 2
    result = world.run_all()
    alert = alert_of(world, result)
    assert alert is not None
    assert (alert.kind, alert.project, alert.job, alert.status) == ("run", "tests", "numbers", "partial")
    assert (alert.run_id, list(alert.datasets)) == (result.run_id, ["b/1"])
    assert "row 2" in alert.datasets["b/1"]
    assert alert.text.startswith(
        f"numbers: run {result.run_id[:8]} failed. Run partial. Datasets: 2 committed, 1 failed"
    )
    with closing(world.binding.project.open_store()) as store:
        (record,) = store.find_runs("numbers", [result.run_id])
        again = {"b/1": replace(record.datasets["b/1"], error="its second try")}
        started_at = record.started_at + timedelta(minutes=1)
        store.save_run(replace(record, run_id=f"{record.run_id}.1", started_at=started_at, datasets=again))
    alert = alert_of(world, result)
    assert alert is not None
    assert alert.datasets == {"b/1": "its second try"}, "the newest try of a step counts"


def test_run_of_chosen_assets_and_one_that_succeeded_are_told_too(world: World) -> None:
    world.add_partitions("a")
    alert = alert_of(world, world.run_range("a"), SUCCESS)
    assert alert is not None
    assert (alert.status, alert.datasets) == ("success", {})


def test_run_that_fails_before_it_works_tells_why(world: World) -> None:
    result = world.run_range("nobody")
    alert = alert_of(world, result)
    assert alert is not None
    assert alert.status == "failed"
    assert "partition 'nobody'" in alert.text


def test_run_of_other_assets_is_not_told(world: World) -> None:
    @dg.asset
    def mine() -> None:
        raise ValueError

    result = dg.materialize([mine], instance=world.instance, raise_on_error=False)
    assert alert_of(world, result) is None


ALERT = Alert("run", "tests", "numbers", "text", {f"d{number}": "why" for number in range(25)}, "failed", "r")


def test_webhook_posts_json_and_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "_PAUSE_S", 0)
    with running_api(lambda _: Reply({})) as api:
        api.faults += [Reply(status=503), Reply(status=429)]
        monkeypatch.setenv("ALERT_URL", f"{api.url}/secret-part")
        Webhook("ALERT_URL")(ALERT)
        assert [one.path for one in api.asked] == ["/secret-part"] * 3
        sent = json.loads(api.asked[-1].body)
    assert (sent["text"], sent["status"], sent["run_id"], sent["dataset_count"]) == ("text", "failed", "r", 25)
    assert len(sent["datasets"]) == 20


@pytest.mark.parametrize(("status", "times"), [(404, 1), (500, 3), (302, 1)])
def test_webhook_that_refuses_is_told_without_its_url(monkeypatch: pytest.MonkeyPatch, status: int, times: int) -> None:
    monkeypatch.setattr(alerts, "_PAUSE_S", 0)
    with running_api(lambda _: Reply(status=status, headers={"Location": "/elsewhere"})) as api:
        monkeypatch.setenv("ALERT_URL", f"{api.url}/secret-part")
        with pytest.raises(TransientError, match=rf"ALERT_URL \(127.0.0.1\).*it answers {status}") as caught:
            Webhook("ALERT_URL")(ALERT)
        assert len(api.asked) == times
    assert "secret-part" not in str(caught.value)


def test_webhook_that_is_away_is_told_without_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "_PAUSE_S", 0)
    monkeypatch.setenv("ALERT_URL", "http://127.0.0.1:9/secret-part")
    with pytest.raises(TransientError, match="no answer") as caught:
        Webhook("ALERT_URL")(ALERT)
    assert "secret-part" not in str(caught.value)
    monkeypatch.delenv("ALERT_URL")
    with pytest.raises(EnvironmentFaultError, match="ALERT_URL"):
        Webhook("ALERT_URL")(ALERT)


def test_project_file_asks_for_alerts(tmp_path: Path) -> None:
    write_demo(tmp_path / "demo")
    settings, job = tmp_path / "demo" / "gobblin.yaml", tmp_path / "demo" / "jobs" / "flights.yaml"
    names = {one.name for one in build_definitions(tmp_path / "demo").sensors or ()}
    settings.write_text(settings.read_text() + "\nalerts: {webhook_env: ALERT_URL, runs: [failure, success]}\n")
    job.write_text(job.read_text() + "\nasset: {sla: {max_age: 26h}}\n")
    made = build_definitions(tmp_path / "demo").sensors or ()
    assert {one.name for one in made} - names == {"demo_alert_failure", "demo_alert_success", "demo_sla"}


def test_run_is_told_although_the_state_store_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.datasets["b/1"]["fail_at"] = 2
    result = world.run_all()

    def away(_: Project) -> None:
        raise TransientError(problem="The store is away.")

    monkeypatch.setattr(Project, "open_store", away)
    alert = alert_of(world, result)
    assert alert is not None
    assert alert.datasets == {"b/1": ""}
    assert "row 2" in alert.text


def test_run_of_a_job_of_ones_own_is_told_if_our_step_fails(world: World) -> None:
    world.datasets["b/1"]["fail_at"] = 2
    defs = dg.Definitions.merge(world.definitions, dg.Definitions(jobs=[dg.define_asset_job("nightly")]))
    result = defs.resolve_job_def("nightly").execute_in_process(instance=world.instance, raise_on_error=False)
    alert = alert_of(world, result)
    assert alert is not None
    assert (alert.job, list(alert.datasets)) == ("numbers", ["b/1"])


def test_runs_of_others_do_not_keep_a_tick_from_those_of_the_project(world: World) -> None:
    """Dagster lets a tick fail that has a skip reason beside runs that were told: they would be told for ever."""

    @dg.asset
    def mine() -> None:
        raise ValueError

    told: list[Alert] = []
    sensor = run_alert_sensor(world.binding.project, told.append)
    world.datasets["b/1"]["fail_at"] = 2
    cursor = None
    for number in range(3):
        if number == 1:
            dg.materialize([mine], instance=world.instance, raise_on_error=False)
            world.run_all()
            dg.materialize([mine], instance=world.instance, raise_on_error=False)
        with dg.build_sensor_context(instance=world.instance, cursor=cursor) as context:
            cursor = sensor.evaluate_tick(context).cursor
    assert [one.job for one in told] == ["numbers"]


def test_answer_that_does_not_come_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alert may have been taken: it would be told twice."""
    go = threading.Event()
    monkeypatch.setattr(alerts, "_ANSWER_S", 0.05)

    def slow(_: object) -> Reply:
        assert go.wait(60)
        return Reply({})

    with running_api(slow) as api:
        monkeypatch.setenv("ALERT_URL", api.url)
        with pytest.raises(TransientError, match="no answer within 0 s, so it may have taken it"):
            Webhook("ALERT_URL")(ALERT)
        go.set()
        assert len(api.asked) == 1


def test_body_of_an_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_api(lambda _: Reply({}, headers={"Content-Length": "1000"})) as api:
        monkeypatch.setenv("ALERT_URL", api.url)
        Webhook("ALERT_URL")(ALERT)
        assert len(api.asked) == 1


def test_webhook_gives_up_in_time_for_the_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "_LAST_TRY_S", -1)
    with running_api(lambda _: Reply(status=503)) as api:
        monkeypatch.setenv("ALERT_URL", api.url)
        with pytest.raises(TransientError, match="503"):
            Webhook("ALERT_URL")(ALERT)
        assert len(api.asked) == 1
    monkeypatch.setenv("ALERT_URL", "http://[secret-part]/")
    with pytest.raises(TransientError, match="no host") as caught:
        Webhook("ALERT_URL")(ALERT)
    assert "secret-part" not in str(caught.value)
