"""What Dagster gets of values of `${NAME}`: nothing, wherever they were in a job, in a project, or in an error."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from gobblin_dagster.core.errors import SourceError
from gobblin_dagster.core.secrets import remember
from gobblin_dagster.engine.project import Project
from gobblin_dagster.orchestration import GobblinSparkResource, build_definitions, new_data_sensor
from gobblin_dagster.orchestration.checks import check_specs
from gobblin_dagster.orchestration.errors import without_secrets
from gobblin_dagster.orchestration.upstream import upstream_specs
from gobblin_dagster.spec.project import ProjectSpec
from tests.unit.orchestration.world import World

SECRET = "kanarienvogel-7391"


@pytest.fixture(autouse=True)
def _canary() -> None:
    remember({SECRET: "${CANARY}"})


def refuse(*_: object) -> Iterator[Any]:
    """Fail as a driver does, whose text has the password."""
    raise ValueError(f"login with {SECRET} refused")


def of_ours() -> None:
    try:
        refuse()
    except ValueError as error:
        raise SourceError(job="numbers", problem="it refuses") from error


def failure() -> None:
    raise dg.Failure(f"with {SECRET}", metadata={"kept": 1}, allow_retries=False)


@pytest.mark.parametrize(("fail", "kind"), [(refuse, dg.Failure), (of_ours, SourceError), (failure, dg.Failure)])
def test_error_is_raised_again_without_the_value(fail: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught, without_secrets():
        fail()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    if fail is failure:
        assert isinstance(caught.value, dg.Failure)
        assert (caught.value.description, [*caught.value.metadata]) == ("with ${CANARY}", ["kept"])
        assert not caught.value.allow_retries


def test_error_without_a_value_passes_as_it_is() -> None:
    cause = ValueError("why")
    with pytest.raises(SourceError) as caught, without_secrets():
        raise SourceError(job="numbers", problem="it refuses") from cause
    assert caught.value.__cause__ is cause


LEAKY = {"type": "python", "datasets": f"{__name__}:refuse", "read": f"{__name__}:refuse"}


def test_run_that_cannot_be_planned_stores_no_value(world: World) -> None:
    world.parts["source"] = LEAKY
    result = world.run_all()
    assert "login with ${CANARY} refused" in world.error(result)
    assert [one for one in world.instance.all_logs(result.run_id) if SECRET in dg.serialize_value(one)] == []


def test_tick_that_cannot_plan_stores_no_value(world: World) -> None:
    world.parts["source"] = LEAKY
    sensor = new_data_sensor(world.binding.project, world.job)
    with dg.build_sensor_context(instance=world.instance) as context, pytest.raises(SourceError) as caught:
        sensor.evaluate_tick(context)
    told = "".join(traceback.format_exception(caught.value))
    assert SECRET not in told
    assert "${CANARY}" in told


def test_problems_and_notes_of_plans_are_told_without_the_value(world: World) -> None:
    world.datasets = {"a": {"rows": 0, "problem": f"no folder {SECRET}"}, "b/1": {"rows": 1, "note": SECRET}}
    result = world.run_all()
    logs = [dg.serialize_value(one) for one in world.instance.all_logs(result.run_id)]
    assert [one for one in logs if SECRET in one] == []
    assert [one for one in logs if "no folder ${CANARY}" in one]
    sensor = new_data_sensor(world.binding.project, world.job)
    with dg.build_sensor_context(instance=world.instance) as context:
        assert "no folder ${CANARY}" in str(sensor.evaluate_tick(context).skip_message)


def test_definitions_show_no_value(world: World) -> None:
    world.parts |= {
        "description": f"reads with {SECRET}",
        "source": {"type": "rest", "url": f"https://API.shop.com/{SECRET}/v2", "datasets": {"a": "/a"}},
        "row_policies": [{"name": "sound", "type": "sql", "rule": f"value <> '{SECRET}'"}],
    }
    conf = {"spark.hadoop.fs.s3a.secret.key": SECRET}
    settings = ProjectSpec.model_validate({"project": "tests", "spark": {"conf": conf}})
    made = Project(world.root, settings, (world.job,))
    (upstream,) = upstream_specs(world.job)
    assert upstream.metadata["dagster/uri"] == "https://API.shop.com/${CANARY}/v2"
    assert {one.description for one in check_specs(world.binding)} >= {
        "Row-level policy, on violation: quarantine; rule: value <> '${CANARY}'"
    }
    # Stored with each run:
    job = build_definitions(made).resolve_job_def("numbers_job")
    stored = dg.serialize_value(job.get_job_snapshot())
    assert SECRET not in stored
    assert "reads with ${CANARY}" in stored
    assert GobblinSparkResource.of_project(made).spec.conf == conf


def test_settings_of_ones_own_stay_as_they_are() -> None:
    resource = GobblinSparkResource(conf={"spark.own": "${CANARY}"})
    assert resource.spec.conf == {"spark.own": "${CANARY}"}
    small = Project(Path("tests"), ProjectSpec.model_validate({"project": "tests", "spark": {"start": "when_needed"}}))
    assert [one.spec.start for one in (resource, GobblinSparkResource.of_project(small))] == ["always", "when_needed"]
