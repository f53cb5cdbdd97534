"""No option of a job leads past the allow lists by another key, another case or a name of a dataset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.core.errors import InvalidSpecError
from gobblin_dagster.engine.allowed import faults_of, require_allowed
from gobblin_dagster.engine.check import check_project
from gobblin_dagster.spec.job import JobSpec

LISTS = AllowLists(paths=("in", "lake"), modules=(), hosts=("broker:9092",))


JNDI = 'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://evil";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b://c";'


def spark(**options: Any) -> dict[str, Any]:
    """Return a Spark source."""
    return {"type": "spark", "format": "json", **options}


def kafka(**config: str) -> dict[str, Any]:
    """Return a Kafka source with settings of the client library; `_` stands for `.`."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return {"type": "kafka", "brokers": "broker:9092", "topics": ["orders"], "config": settings}


@pytest.mark.parametrize(
    ("source", "place"),
    [
        (spark(options={"PATHS": '["/etc/passwd"]'}), "source.options.PATHS"),
        (spark(options={"paths": '["/etc/passwd"]'}), "source.options.paths"),
        (spark(options={"Path": "../elsewhere"}), "source.options.Path"),
        (spark(options={"path": "file:/etc/passwd"}), "source.options.path"),
        (spark(path="in/{a,../../b}"), "source.path"),
        (spark(path="in/{dataset}", datasets=["../../etc"]), "source.datasets[0]"),
        (spark(path="in/{dataset}", datasets=["orders", ".."]), "source.datasets[1]"),
        (spark(table="parquet.{dataset}", datasets=["etc"]), "source.table"),
        (spark(path="in/{dataset}{dataset}/x", datasets=["."]), "source.datasets[0]"),
        (
            spark(options={"url": "jdbc:mysql://broker:9092/x?user={dataset}"}, datasets=["x&autoDeserialize=true"]),
            "source.datasets[0]",
        ),
        (spark(table="csv . elsewhere"), "source.table"),
        (spark(options={"url": "jdbc:derby:/etc/x;create=true"}), "source.options.url"),
        (kafka(plugin_library_paths="/etc/x.so"), "source.config.plugin.library.paths"),
        (kafka(sasl_kerberos_kinit_cmd="touch x"), "source.config.sasl.kerberos.kinit.cmd"),
        (kafka(metadata_broker_list="broker:9092,evil:1"), "source.config.metadata.broker.list"),
        (kafka(bootstrap_servers="evil:1"), "source.config.bootstrap.servers"),
        (kafka(sasl_kerberos_keytab="/etc/krb5.keytab"), "source.config.sasl.kerberos.keytab"),
        (kafka(ssl_engine_id="/in/evil"), "source.config.ssl.engine.id"),
        (kafka(ssl_providers="/in/evil"), "source.config.ssl.providers"),
        (
            kafka(sasl_oauthbearer_assertion_private_key_file="/etc/key"),
            "source.config.sasl.oauthbearer.assertion.private.key.file",
        ),
        (kafka() | {"value": {"type": "avro", "registry": "/etc"}}, "source.value.registry"),
        (spark(options={"avroSchemaUrl": "FILE:/etc/passwd"}), "source.options.avroSchemaUrl"),
        (spark(options={"kafka.bootstrap.servers": "broker:9092,evil:1"}), "source.options.kafka.bootstrap.servers"),
        (spark(options={"es.nodes": "evil:9200"}), "source.options.es.nodes"),
        (spark(options={"sfURL": "evil.snowflakecomputing.com"}), "source.options.sfURL"),
        (spark(options={"rowValidationXSDPath": "x.xsd"}), "source.options.rowValidationXSDPath"),
        (spark(options={"driver": "org.evil.Driver"}), "source.options.driver"),
        (spark(options={"compression": "org.evil.Codec"}), "source.options.compression"),
        (spark(options={"socketFactory": "x.Y"}), "source.options.socketFactory"),
        (spark(options={"fs.s3a.endpoint.region": "x@evil/#"}), "source.options.fs.s3a.endpoint.region"),
        (spark(options={"connection.uri": "mongodb://evil"}), "source.options.connection.uri"),
        (spark(options={"never.heard.of": 1}), "source.options.never.heard.of"),
        (spark(format="org.evil.Format"), "source.format"),
        (
            spark(options={"kafka.sasl.login.callback.handler.class": "a.B"}),
            "source.options.kafka.sasl.login.callback.handler.class",
        ),
        (spark(options={"kafka.sasl.jaas.config": JNDI}), "source.options.kafka.sasl.jaas.config"),
        (kafka(sasl_kerberos_principal="x; touch /tmp/y"), "source.config.sasl.kerberos.principal"),
        (kafka(never_heard_of="x"), "source.config.never.heard.of"),
    ],
    ids=str,
)
def test_ways_past_the_lists_are_refused(source: dict[str, Any], place: str, tmp_path: Path) -> None:
    assert [fault.path for fault in faults_of(job(source), str(tmp_path), LISTS)] == [place]


@pytest.mark.parametrize(
    "option", ["s3.endpoint", "hdfs.host", "gcs.service.host", "adls.account-host", "s3.proxy-uri"]
)
def test_servers_without_a_scheme_are_hosts(option: str, tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": "sqlite:///in/c.db", "warehouse": "lake", option: "evil:9000"}
    spec = published({"type": "iceberg", "table": "s.t", "catalog": catalog})
    assert [fault.path for fault in faults_of(spec, str(tmp_path), LISTS)] == [f"publisher.catalog.{option}"]


@pytest.mark.parametrize("server", ["http://{}:9000", "https://{}", "HTTP://{}:9000/x", "http://me:word@{}:9000"])
def test_servers_of_stores_may_be_urls(server: str, tmp_path: Path) -> None:
    lists = AllowLists(hosts=("minio",))
    for host, refused in (("minio", False), ("evil", True), ("minio@evil", True), ("evil#@minio", True)):
        options = {"AWS_ENDPOINT_URL": server.format(host)}
        faults = faults_of(published({"type": "delta", "storage_options": options}), str(tmp_path), lists)
        assert [fault.path for fault in faults] == ["publisher.storage_options.AWS_ENDPOINT_URL"] * refused, host
        assert "word" not in "".join(fault.problem for fault in faults)


@pytest.mark.parametrize("options", [{"google_service_account": "/etc/key"}, {"proxy_url": "evil:80"}], ids=str)
def test_storage_options_name_no_other_files_and_servers(options: dict[str, str], tmp_path: Path) -> None:
    spec = published({"type": "delta", "storage_options": options})
    assert [fault.path for fault in faults_of(spec, str(tmp_path), LISTS)] == [
        f"publisher.storage_options.{next(iter(options))}"
    ]


@pytest.mark.parametrize(
    "lists",
    [AllowLists(paths=("in",)), AllowLists(environment=()), AllowLists(modules=()), AllowLists(hosts=())],
    ids=["paths", "environment", "modules", "hosts"],
)
@pytest.mark.parametrize(
    "source",
    [
        {"type": "spark", "query": "select '${env:HOME}'"},
        {"type": "spark", "query": "select reflect('java.lang.System', 'getenv', 'HOME')"},
        {"type": "spark", "table": "a", "sql": "select {rows.__init__.__globals__[sys]} from {rows}"},
        {"type": "spark", "table": "${env:HOME}"},
    ],
    ids=["variable", "method", "format", "table"],
)
def test_sql_of_spark_is_code_beside_each_list(source: dict[str, Any], lists: AllowLists, tmp_path: Path) -> None:
    (fault,) = (one for one in faults_of(job(source), str(tmp_path), lists) if one.path.startswith("source"))
    assert "Spark's SQL" in fault.problem


def test_sql_of_spark_is_code_also_if_its_class_is_named_by_its_module(tmp_path: Path) -> None:
    source = {"type": "gobblin_dagster.constructs.sources.spark.source:SparkSource", "query": "select 1"}
    lists = AllowLists(paths=(str(tmp_path),))
    assert [fault.path for fault in faults_of(job(source), str(tmp_path), lists)] == ["source.query"]


def test_catalog_of_pyicebergs_own_configuration_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    (tmp_path / ".pyiceberg.yaml").write_text("catalog:\n  Prod:\n    uri: https://prod\n    credential: id:word\n")
    monkeypatch.setenv("PYICEBERG_CATALOG__OTHER__URI", "https://other")
    catalog = {"type": "sql", "uri": "sqlite:///in/c.db", "warehouse": "lake"}

    def refused(lists: AllowLists, **options: str) -> list[str]:
        spec = published({"type": "iceberg", "table": "s.t", "catalog": catalog, **options})
        return [fault.path for fault in faults_of(spec, str(tmp_path), lists)]

    for name in ("prod", "PROD", "other"):
        assert refused(LISTS, catalog_name=name) == ["publisher.catalog_name"]
        assert not {"publisher.catalog_name"} & {*refused(AllowLists(sources=()), catalog_name=name)}
    assert refused(LISTS) == []


def test_link_that_leads_out_between_two_runs_of_a_process_is_refused(tmp_path: Path) -> None:
    inside, place = tmp_path / "in", tmp_path / "in" / "place"
    (inside / "good").mkdir(parents=True)
    place.symlink_to("good")
    spec, lists = job(spark(path="in/place/x.json")), AllowLists(paths=(str(inside), str(tmp_path / "lake")))
    require_allowed(spec, str(tmp_path), lists)
    require_allowed(spec, str(tmp_path), lists, "run-1")
    place.unlink()
    place.symlink_to("/etc")
    for run_id in ("", "run-2"):
        with pytest.raises(InvalidSpecError, match="below none of"):
            require_allowed(spec, str(tmp_path), lists, run_id)


def test_variable_that_hadoop_would_put_into_an_option_is_refused(tmp_path: Path) -> None:
    source = spark(path="in/x.json", options={"fs.s3a.proxy.username": "${env.OTHER}"})
    (fault,) = faults_of(job(source), str(tmp_path), AllowLists(environment=("SHOP_*",)))
    assert (fault.path, "`allow.environment`" in fault.problem) == ("source.options.fs.s3a.proxy.username", True)
    assert faults_of(job(source), str(tmp_path), AllowLists(sources=("spark",))) == ()


def test_sql_of_spark_is_allowed_where_only_sources_are_listed(tmp_path: Path) -> None:
    spec = job({"type": "spark", "query": "select 1"})
    assert faults_of(spec, str(tmp_path), AllowLists(sources=("spark",))) == ()


def test_columns_may_have_names_of_options(tmp_path: Path) -> None:
    columns = {"path": "string", "host": "string", "registry": "string", "key_file": "string"}
    spec = JobSpec.model_validate(
        {**job(spark()).model_dump(), "converters": [{"type": "columns", "columns": columns}]}
    )
    lists = AllowLists(paths=(str(tmp_path),), hosts=())
    assert faults_of(spec, str(tmp_path), lists) == ()


def test_source_that_is_named_as_gobblins_class_counts_as_ours(tmp_path: Path) -> None:
    alias = "org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleSource"
    spec = job({**kafka(), "type": alias})
    assert faults_of(spec, str(tmp_path), AllowLists(sources=("kafka",))) == ()
    (fault,) = faults_of(spec, str(tmp_path), AllowLists(sources=("files",)))
    assert (fault.path, "'kafka' is not in `allow.sources`" in fault.problem) == ("source.type", True)


@pytest.mark.parametrize("declared", ["'shop_canary:Format'", "{type: 'shop_canary:Format'}"])
def test_format_of_a_module_that_is_not_allowed_is_not_imported(declared: str, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "gobblin.yaml").write_text("project: shop\nallow: {modules: []}\n")
    (tmp_path / "shop_canary.py").write_text("from pathlib import Path\nPath(__file__ + '.imported').touch()\n")
    (tmp_path / "jobs" / "orders.yaml").write_text(
        f"job: orders\nsource: {{type: files, path: 'in/{{dataset}}/{{date:%Y}}.x', format: {declared}}}\n"
        "extract: {namespace: shop, table: orders}\noutput: {path: lake}\n"
    )
    (checked,) = check_project(tmp_path).files
    assert ["`allow.modules`" in fault.problem for fault in checked.faults] == [True]
    assert not (tmp_path / "shop_canary.py.imported").exists()


@pytest.mark.parametrize(
    "source",
    [
        spark(path="in/{dataset}/*.json", datasets=["orders", "o.2024", "a b"]),
        spark(path="in/{a,b}", options={"multiLine": True, "DateFormat": "dd/MM/yyyy", "compression": "gzip"}),
        spark(options={"url": "jdbc:postgresql://broker:9092/x", "driver": "org.postgresql.Driver", "dbtable": "s.t"}),
        spark(options={"kafka.bootstrap.servers": "broker:9092", "subscribe": "t", "kafka.sasl.jaas.config": SCRAM}),
        kafka(client_id="shop", security_protocol="SASL_SSL", bootstrap_servers="broker:9092"),
    ],
    ids=str,
)
def test_ordinary_options_are_allowed(source: dict[str, Any], tmp_path: Path) -> None:
    lists = AllowLists(paths=(str(tmp_path),), modules=(), hosts=LISTS.hosts)
    assert faults_of(job(source), str(tmp_path), lists) == ()


def test_owner_allows_settings_by_name_and_classes_by_module(tmp_path: Path) -> None:
    options = {"connection.uri": "mongodb://broker:9092/x", "driver": "org.shop.Driver", "kafka.sasl.jaas.config": JNDI}
    lists = AllowLists(paths=(str(tmp_path),), modules=("org.shop",), hosts=LISTS.hosts)
    assert len(faults_of(job(spark(options=options)), str(tmp_path), lists)) == 2
    lists = replace(lists, options=("connection.*", "mongodb:", "kafka.SASL.jaas.config"))
    assert faults_of(job(spark(options=options)), str(tmp_path), lists) == ()


@pytest.mark.parametrize(
    "parts",
    [
        {"converters": [{"type": "sql", "where": "url like 'https://%'"}]},
        {"converters": [{"type": "filter", "column": "url", "matches": "https://.*"}]},
        {"converters": [{"type": "filter", "column": "kind", "equals": ["shop:order", "s3://x"]}]},
        {"row_policies": [{"name": "p", "type": "in_set", "column": "kind", "values": ["shop:order"]}]},
        {"source": {"type": "rest", "url": "http://broker:9092", "params": {"path": "a:b", "next": "http://x/y"}}},
        {"source": {"type": "rest", "url": "http://broker:9092", "body": {"a": {"url": ["http://x"]}}}},
    ],
    ids=str,
)
def test_urls_and_names_with_colons_in_data_are_texts(parts: dict[str, Any], tmp_path: Path) -> None:
    spec = JobSpec.model_validate({**job(kafka()).model_dump(), **parts})
    assert faults_of(spec, str(tmp_path), LISTS) == ()


def test_options_of_own_classes_are_no_data(tmp_path: Path) -> None:
    converters = [{"type": "shop:Class", "values": "https://x", "body": {"path": "/etc"}}]
    spec = JobSpec.model_validate({**job(kafka()).model_dump(), "converters": converters})
    found = faults_of(spec, str(tmp_path), replace(LISTS, modules=("shop",)))
    assert [fault.path for fault in found] == ["converters[0].values", "converters[0].body.path"]


def published(publisher: dict[str, Any]) -> JobSpec:
    """Return a job with the publisher."""
    source = {"type": "query", "url": "sqlite:///in/x.db", "tables": ["a"], "watermark": {"column": "id"}}
    return JobSpec.model_validate({**job(source).model_dump(), "publisher": publisher})


def job(source: dict[str, Any]) -> JobSpec:
    """Return a job that reads the source."""
    return JobSpec.model_validate(
        {"job": "j", "source": source, "extract": {"namespace": "s", "table": "t"}, "output": {"path": "lake"}}
    )


TABLE = {"type": "sql_table", "url_env": "PLACE", "table": "t"}


@pytest.mark.parametrize(
    ("publisher", "value", "problem"),
    [
        (TABLE, "postgresql://u:s3cr3t-word@evil:5432/db", "the host 'evil:5432' is not in `allow.hosts`"),
        (TABLE, "sqlite:////etc/x.db", "is below none of `allow.paths`"),
        (
            {
                "type": "kafka_topic",
                "brokers": "broker:9092",
                "topic": "t",
                "config_env": {"bootstrap.servers": "PLACE"},
            },
            "evil:1",
            "is not in `allow.hosts`",
        ),
        (TABLE, "postgresql://u:s3cr3t-word@broker:9092/db", ""),
        (
            {"type": "kafka_topic", "brokers": "broker:9092", "topic": "t", "config_env": {"sasl.password": "PLACE"}},
            "any:thing",
            "",
        ),
    ],
    ids=["server", "file", "broker", "allowed", "password"],
)
def test_servers_and_files_that_variables_name_are_checked(
    publisher: dict[str, Any], value: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may name any variable that is there, such as the URL of another job's database."""
    monkeypatch.setenv("PLACE", value)
    source = {"type": "kafka", "brokers": "broker:9092", "topics": ["orders"]}
    body = job(source).model_dump() | {"fork": {"branches": [{"name": "main", "publisher": publisher}]}}
    faults = faults_of(JobSpec.model_validate(body), str(tmp_path), LISTS)
    assert [problem in fault.problem and "variable PLACE" in fault.problem for fault in faults] == [True] * bool(
        problem
    )
    assert not any("s3cr3t-word" in fault.problem for fault in faults)
