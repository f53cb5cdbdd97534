"""Settings of tables are stored with commit sequences: a job file whose settings hold a secret is refused, unshown."""

import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.publishers.delta import DeltaOptions
from gobblin_dagster.constructs.publishers.iceberg import IcebergOptions


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
