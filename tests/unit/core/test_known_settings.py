"""Settings of clients: each is known by its whole name, in any case, and no pattern hides what a name says."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from gobblin_dagster.core.known_settings import DATABASE, DELTA, ICEBERG, KAFKA, SPARK, SQLITE, Settings, kind_of


@pytest.mark.parametrize(
    ("settings", "name", "kind"),
    [
        (DATABASE, "SSLRootCert", "path"),
        (DATABASE, "service", None),
        (DATABASE, "local_infile", None),
        (SPARK, "dbTable", "plain"),
        (SPARK, "kafka.ssl.truststore.location", "path"),
        (SPARK, "kafka.session.timeout.ms", "plain"),
        (SPARK, "kafka.sasl.client.callback.handler.class", "code"),
        (SPARK, "kafka.partition.assignment.strategy", "code"),
        (KAFKA, "partition.assignment.strategy", "plain"),
        (KAFKA, "sasl.kerberos.keytab", "path"),
        (ICEBERG, "s3.region", "name"),
        (ICEBERG, "adls.connection-string", None),
        (DELTA, "AWS_SECRET_ACCESS_KEY", "plain"),
        (DELTA, "azure_federated_token_file", "path"),
        (SQLITE, "vfs", None),
    ],
)
def test_settings_are_known_in_any_case(settings: Settings, name: str, kind: str | None) -> None:
    assert kind_of(settings, name) == kind


@pytest.mark.parametrize("settings", [DATABASE, SPARK, KAFKA, ICEBERG, DELTA], ids=len)
def test_plain_patterns_match_no_setting_of_another_kind(settings: Settings) -> None:
    """A client may read a name in a way of its own, as deltalake does with prefixes."""
    patterns = [name for name, kind in settings.items() if "*" in name and kind == "plain"]
    others = [name for name, kind in settings.items() if kind not in ("plain", "name")]
    assert [(one, pattern) for one in others for pattern in patterns if fnmatchcase(one, pattern)] == []
