"""Settings of tables are stored with commit sequences: a job file whose settings hold a secret is refused, unshown."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.clients.kafka import client_settings
from gobblin_dagster.constructs.publishers.delta import DeltaOptions
from gobblin_dagster.constructs.publishers.iceberg import IcebergOptions
from gobblin_dagster.constructs.publishers.kafka_topic import KafkaTopicOptions, KafkaTopicPublisher, SendToKafkaStep
from gobblin_dagster.core.constructs import ConstructContext, PublishView
from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.secrets import forget, remember
from tests.unit.constructs.publishers.table_jobs import at_commit, table_job
from tests.unit.engine.jobs import run


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("uri", "postgresql+psycopg://me:hunter2@db.example/catalog"),
        ("credential", "hunter2"),
        ("token", "hunter2"),
        ("s3.secret-access-key", "hunter2"),
        ("s3.session-token", "hunter2"),
        ("adls.account-key", "hunter2"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "hunter2"),
        ("AWS_SECRET_ACCESS_KEY", "hunter2"),
    ],
)
def test_secret_setting_is_refused_with_what_to_do_and_not_shown(name: str, value: str) -> None:
    with pytest.raises(ValidationError) as iceberg:
        IcebergOptions(table="lake.orders", catalog={"type": "rest", name: value})
    assert iceberg.value.errors()[0]["msg"].endswith(
        f"{name} must hold no secret; name the environment variable in `catalog_env`"
    )
    with pytest.raises(ValidationError) as delta:
        DeltaOptions(storage_options={name: value})
    message = delta.value.errors()[0]["msg"]
    assert f"{name} must hold no secret" in message
    assert "`storage_options_env`" in message
    assert "hunter2" not in message


def test_plain_settings_are_taken() -> None:
    catalog = {
        "type": "sql",
        "uri": "postgresql+psycopg://reader@db.example:5432/catalog",
        "warehouse": "s3://lake/warehouse",
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.access-key-id": "minio",
        "gcs.oauth2.token-expires-at": "1",
    }
    assert IcebergOptions(table="lake.orders", catalog=catalog).catalog == catalog
    plain = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_ACCESS_KEY_ID": "minio", "AWS_REGION": "eu"}
    assert DeltaOptions(storage_options=plain).storage_options == plain


SECRET = "s3cr3t-Word!9"
SETTINGS: dict[str, dict[str, Any]] = {
    "delta": {"storage_options": {"custom": f"Bearer {SECRET}", "other": "plain"}},
    "iceberg": {
        "table": "lake.numbers",
        "catalog": {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "warehouse", "header.x": SECRET},
    },
    "sql_table": {"table": "numbers", "url": f"sqlite:///{SECRET}.db"},
}


@pytest.mark.parametrize("publisher", [{"type": kind, **settings} for kind, settings in SETTINGS.items()], ids=SETTINGS)
def test_value_of_a_variable_is_not_stored_and_recovery_takes_it_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publisher: Mapping[str, Any]
) -> None:
    remember({SECRET: "${LAKE_TOKEN:-none}"})
    job = table_job(dict(publisher), {"c": {"rows": 2}})
    with monkeypatch.context() as patched:
        at_commit(patched)
        run(tmp_path, job)
    assert all(SECRET.encode() not in file.read_bytes() for file in (tmp_path / ".gobblin").rglob("*.db*"))

    forget()  # as in a new process, which has not loaded the job
    failed = run(tmp_path, table_job({"type": "append"}, {"c": {"rows": 2}}))
    assert "${LAKE_TOKEN}" in failed.recovered[0].reason
    assert ", which is not set in the environment" in failed.recovered[0].reason
    monkeypatch.setenv("LAKE_TOKEN", SECRET)
    result = run(tmp_path, job)
    assert {one.state for one in result.recovered} == {"committed"}


def test_commit_goes_where_its_own_project_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two projects of one process may have files or commands for one name, with two values."""
    remember({"own-place": "${PLACE}"})
    job = table_job({"type": "sql_table", "table": "numbers", "url": "sqlite:///own-place.db"}, {"c": {"rows": 2}})
    with monkeypatch.context() as patched:
        at_commit(patched)
        run(tmp_path, job)
    remember({"other-place": "${PLACE}"})
    assert {one.state for one in run(tmp_path, job).recovered} == {"committed"}
    assert not (tmp_path / "other-place.db").exists()


def test_value_of_a_variable_is_not_stored_with_messages() -> None:
    remember({SECRET: "${CLIENT}"})
    options = KafkaTopicOptions(brokers="b:1", topic="t", config={"client.id": f"me {SECRET}", "socket.timeout.ms": 50})
    now = datetime(2026, 11, 21, 8, tzinfo=UTC)
    view = PublishView("j", "r", "c", "a", "all", Extract("raw", "rows"), "/lake", "/lake", now)
    stored = KafkaTopicPublisher(options, ConstructContext("j", "/"))._step(view).to_json()
    assert SECRET not in str(stored)
    loaded = SendToKafkaStep.from_json(stored).connection
    assert client_settings(loaded, {})["client.id"] == f"me {SECRET}"
    forget()
    with pytest.raises(EnvironmentFaultError, match=r"'client.id' is taken from me \$\{CLIENT\}, which is not set"):
        client_settings(loaded, {})
