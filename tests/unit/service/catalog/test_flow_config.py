"""What users post: every fault at once, in the words that Rest.li's validation was seen to use."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gobblin_dagster.core.errors import InvalidFlowError
from gobblin_dagster.service.catalog.flow_config import Concurrency, FlowSettings, parse_flow_config
from gobblin_dagster.service.model import FlowId, Schedule
from gobblin_dagster.spec.schedule import CatchUp

GOOD: dict[str, Any] = {
    "id": {"flowGroup": "g", "flowName": "n"},
    "templateUris": "FS:///t.template",
    "properties": {"a": " b "},
    "schedule": {"cronSchedule": "0 0 * ? * *"},
    "later": {"kept": True},
}


def test_good_flow_keeps_values_as_they_came_and_unknown_fields() -> None:
    config = parse_flow_config(GOOD)
    kept = {"job.db.password": "${env:PASSWORD}", "user.token": "ENC(x)", "gobblin.yarn.token.renew.minutes": "9"}
    assert parse_flow_config({**GOOD, "properties": kept}).properties == kept
    assert config.id == FlowId("g", "n")
    assert config.properties == {"a": " b "}
    assert config.schedule == Schedule("0 0 * ? * *", run_immediately=False)
    assert config.more == {"later": {"kept": True}}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"id": {"flowGroup": "", "flowName": "n"}}, 'ERROR :: /id/flowGroup :: length of "" is out of range 1...128'),
        ({"id": {"flowGroup": "g" * 129, "flowName": "n"}}, "is out of range 1...128"),
        (
            {"id": {"flowGroup": "g"}},
            "ERROR :: /id/flowName :: field is required but not found and has no default value",
        ),
        ({"id": {"flowGroup": "a\nb", "flowName": "n"}}, "holds a control character"),
        ({"id": {"flowGroup": "\ud800", "flowName": "n"}}, "half a unicode character"),
        ({"id": "g/n"}, "/id :: g/n cannot be coerced to a record"),
        ({"templateUris": "http://x/t"}, '"http://x/t" is not a well-formed comma-separated list of URIs'),
        ({"templateUris": "FS:///"}, "is not a well-formed"),
        ({"templateUris": 5}, "/templateUris :: 5 cannot be coerced to String"),
        ({"properties": {"k": 5}}, "/properties/k :: 5 cannot be coerced to String"),
        ({"properties": {"k": None}}, "null cannot be coerced to String"),
        ({"properties": []}, "cannot be coerced to a map"),
        ({"properties": {"k" * 401: "v"}}, "its name has 401 characters; at most 400 are allowed"),
        ({"owningGroup": "k" * 401}, "/owningGroup :: has 401 characters; at most 400 are allowed"),
        ({"explain": "true"}, "/explain :: true cannot be coerced to Boolean"),
        ({"schedule": {"cronSchedule": "*/5 * * * *"}}, '"*/5 * * * *" is not in Cron format'),
        ({"schedule": {"cronSchedule": "* * * ? * *"}}, "fires every 1 s; at least 5 s must lie between"),
        ({"schedule": {"cronSchedule": "0 0 0 31 2 ?"}}, '"0 0 0 31 2 ?" never fires: no year has such a day'),
        ({"schedule": {"cronSchedule": "0 0 0 ? 2 1#5 2026"}}, "never fires"),
        ({"templateUris": ",".join(["FS:///a"] * 101)}, "names 101 templates; at most 100 are allowed"),
        ({"schedule": {}}, "/schedule/cronSchedule :: field is required"),
        ({"schedule": {"cronSchedule": "0 0 * ? * *", "runImmediately": "no"}}, "cannot be coerced to Boolean"),
        ({"properties": {"flow.timeZone": "Mars/Base"}}, '/properties/flow.timeZone :: "Mars/Base" is not a time zone'),
        ({"properties": {"flow.timeZone": "../../etc/passwd"}}, "is not a time zone"),
        ({"properties": {"flow.catchUp": "some"}}, "is not one of all, latest, skip"),
        ({"properties": {"job.maxAttempts": "0"}}, "is not a number from 1 to 100"),
        (
            {"properties": {"gobblin.flow.sla.time": "soon"}},
            '/properties/gobblin.flow.sla.time :: "soon" is not a whole',
        ),
        ({"properties": {"gobblin.flow.sla.time": "0"}}, "is not between 1 second and 3650 days"),
        (
            {"properties": {"gobblin.flow.sla.time": "9999999", "gobblin.flow.sla.timeunit": "DAYS"}},
            "days is not between",
        ),
        ({"properties": {"flow.failureOption": "STOP"}}, '"STOP" is not one of FINISH_ALL_POSSIBLE, FINISH_RUNNING'),
        ({"properties": {"job.db.password": "x"}}, "/properties/job.db.password :: must hold no secret"),
        ({"properties": {"user.home": "sftp://me:x@host/"}}, "/properties/user.home :: must hold no secret"),
        ({"properties": {"gobblin.job.start.sla.timeunit": "WEEKS"}}, '"WEEKS" is not one of SECONDS, MINUTES'),
    ],
)
def test_faults_are_told_by_place(change: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidFlowError) as caught:
        parse_flow_config({**GOOD, **change})
    assert line in caught.value.message()


@pytest.mark.parametrize("document", [None, [], "flow", 5, {}])
def test_what_is_no_flow_is_refused(document: Any) -> None:
    with pytest.raises(InvalidFlowError):
        parse_flow_config(document)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(InvalidFlowError) as caught:
        parse_flow_config({"id": {}, "templateUris": 1, "properties": {"a": 1, "b": 2}, "schedule": 3})
    assert len(caught.value.faults) == 6


def test_deadlines_are_gobblins_properties() -> None:
    assert (FlowSettings.of({}).start_within, FlowSettings.of({}).finish_within) == (None, timedelta(days=1))
    told = {
        "gobblin.flow.sla.time": "90",
        "gobblin.job.start.sla.time": "5",
        "gobblin.job.start.sla.timeunit": "SECONDS",
    }
    settings = FlowSettings.of(told)
    assert (settings.start_within, settings.finish_within) == (timedelta(seconds=5), timedelta(minutes=90))
    assert FlowSettings.stored({"gobblin.flow.sla.time": "soon", "flow.catchUp": "all"}).catch_up is CatchUp.ALL


def test_settings_follow_gobblins_own_property_unless_ours_is_set() -> None:
    assert FlowSettings.of({}).catch_up is CatchUp.LATEST
    assert FlowSettings.of({"flow.allowConcurrentExecution": "false"}).concurrency is Concurrency.REFUSE
    both = {"flow.allowConcurrentExecution": "false", "flow.concurrency": "queue"}
    assert FlowSettings.of(both).concurrency is Concurrency.QUEUE
