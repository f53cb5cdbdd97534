"""Jobs written for Gobblin, as its examples are, run from their files: text to Avro, JSON lines to Parquet, dated
folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow.dataset as ds

from tests.unit.cli.conftest import Cli

CSV_TO_AVRO = """\
source.filebased.data.directory=data/csv
source.class=org.apache.gobblin.source.extractor.filebased.TextFileBasedSource
converter.classes="org.apache.gobblin.converter.StringSchemaInjector,org.apache.gobblin.converter.csv.CsvToJsonConverter,org.apache.gobblin.converter.avro.JsonIntermediateToAvroConverter"
writer.builder.class=org.apache.gobblin.writer.AvroDataWriterBuilder
job.name=CsvToAvro
extract.table.name=CsvToAvro
extract.namespace=org.apache.gobblin.example
extract.table.type=APPEND_ONLY
gobblin.converter.schemaInjector.schema="[{\\"columnName\\":\\"ID\\",\\"dataType\\":{\\"type\\":\\"int\\"}},{\\"columnName\\":\\"NAME\\",\\"dataType\\":{\\"type\\":\\"string\\"}}]"
converter.csv.to.json.delimiter=","
writer.output.format=AVRO
fs.uri="file:///"
writer.destination.type=HDFS
writer.fs.uri=${fs.uri}
state.store.fs.uri=${fs.uri}
data.publisher.fs.uri=${fs.uri}
data.publisher.final.dir=out/csvToAvro
"""

JSON_TO_PARQUET = """\
job.name=events
source.class=org.apache.gobblin.source.extractor.filebased.TextFileBasedSource
source.filebased.data.directory=${work}/json
source.filebased.maxFilesPerRun=1
source.schema=[{"columnName":"id","dataType":{"type":"long"}},\\
  {"columnName":"type","dataType":{"type":"enum","symbols":["Push"]}},\\
  {"columnName":"actor","dataType":{"type":"record","values":[{"columnName":"login","dataType":{"type":"string"}}]}}]
converter.classes=org.apache.gobblin.converter.json.JsonStringToJsonIntermediateConverter,\\
  org.apache.gobblin.converter.parquet.JsonIntermediateToParquetGroupConverter
extract.namespace=example
writer.output.format=PARQUET
data.publisher.final.dir=out
work=data
"""

DAILY = """\
job.name=Daily
source.class=gobblin.source.DatePartitionedJsonFileSource
source.filebased.data.directory=data/daily
date.partitioned.source.partition.pattern=yyyy/MM/dd
date.partitioned.source.min.watermark.value=2015/01/01
source.schema=[{"columnName":"at","dataType":{"type":"timestamp"}},{"columnName":"n","dataType":{"type":"int"}}]
converter.classes=JsonStringToJsonIntermediateConverter
extract.namespace=example
writer.output.format=PARQUET
writer.codec.type=snappy
writer.partitioner.class=gobblin.writer.partitioner.TimeBasedAvroWriterPartitioner
writer.partition.columns=at
writer.partition.pattern=yyyy/MM
writer.partition.prefix=monthly
writer.partition.timezone=Europe/Zurich
data.publisher.type=gobblin.publisher.TimePartitionedDataPublisher
data.publisher.final.dir=out
"""


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ds.dataset(folder, format="parquet").to_table().to_pylist()
    return found


def test_lines_of_csv_become_avro_records(cli: Cli, project: Path, inline: object) -> None:
    put(project / "jobs" / "csvToAvro.conf", CSV_TO_AVRO)
    put(project / "data/csv/one.txt", "1,Ann\n2,null\n")
    put(project / "data/csv/two.txt", "3\n")
    called = cli("run", "CsvToAvro")
    assert called.code == 0, called.err
    found: list[dict[str, Any]] = []
    for path in (project / "out/csvToAvro/org_apache_gobblin_example/CsvToAvro").rglob("*.avro"):
        with path.open("rb") as file:
            found += cast("list[dict[str, Any]]", list(fastavro.reader(file)))
    # A short row ends with nulls and the text null is one, as in the original.
    assert sorted((row["ID"], row["NAME"]) for row in found) == [(1, "Ann"), (2, None), (3, None)]


def test_json_lines_become_columns_file_by_file(cli: Cli, project: Path, inline: object) -> None:
    put(project / "jobs" / "events.pull", JSON_TO_PARQUET)
    put(project / "data/json/1.json", '{"id": 1, "type": "Push", "actor": {"login": "ann"}}\n')
    put(project / "data/json/2.json", '{"id": 2, "type": "Push", "actor": {"login": "bob"}}\n')
    lake = project / "out/example/events/main"
    for expected in ({1}, {1, 2}):  # maxFilesPerRun
        called = cli("run", "events")
        assert called.code == 0, called.err
        assert {row["id"] for row in rows(lake)} <= {1, 2}
        assert len(rows(lake)) == len(expected)
    assert {row["actor"]["login"] for row in rows(lake)} == {"ann", "bob"}


def test_dated_folders_become_folders_of_months_in_a_zone(cli: Cli, project: Path, inline: object) -> None:
    put(project / "jobs" / "daily.pull", DAILY)
    put(project / "data/daily/2015/01/01/a.json", '{"at": "2015-01-01T12:00:00Z", "n": 1}\n')
    put(project / "data/daily/2015/01/02/a.json", '{"at": "2015-01-02T12:00:00Z", "n": 2}\n')
    put(project / "data/daily/2015/01/31/a.json", '{"at": "2015-01-31T23:30:00Z", "n": 3}\n')
    called = cli("run", "Daily")
    assert called.code == 0, called.err
    lake = project / "out/example/daily/main/example.daily"
    assert {folder.name: [row["n"] for row in rows(folder)] for folder in lake.iterdir()} == {
        "monthly=2015-01": [2],
        "monthly=2015-02": [3],
    }
