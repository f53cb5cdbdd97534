"""Find the optional packages that a job needs from its declaration alone; `gobblin check` imports nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from gobblin_dagster.core.utils.optional_packages import EXTRAS
from gobblin_dagster.spec.document import show_loc
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.load import constructs

_OF_TYPE: Mapping[tuple[str, str], str] = {
    ("source", "kafka"): "confluent_kafka",
    ("publisher", "kafka_topic"): "confluent_kafka",
    ("publisher", "iceberg"): "pyiceberg",
    ("publisher", "delta"): "deltalake",
    ("format", "avro"): "fastavro",
    ("writer", "avro"): "fastavro",
    ("converter", "avro_bytes"): "fastavro",
    ("converter", "encrypt"): "cryptography",
    ("converter", "decrypt"): "cryptography",
}
"""Modules by kind and type of construct."""
_OF_SCHEME: Mapping[str, str] = {
    "s3": "boto3",
    "hdfs": "hdfs_native",
    "sftp": "sshfs",
    "postgres": "psycopg2",
    "postgresql": "psycopg2",
    "postgresql+psycopg2": "psycopg2",
    "mysql": "pymysql",
    "mariadb": "pymysql",
}
"""Modules by the scheme of a path or of a database's URL."""
_PLACES = ("path", "paths", "url")
"""Options that contain such paths and URLs."""


def missing_extras(job: JobSpec) -> list[tuple[str, str]]:
    """Return (place in the job file, problem) for each part of a job whose package is not installed."""
    found = dict(_needed(job))
    return [(place, EXTRAS[module].missing()) for place, module in found.items() if not is_installed(module)]


def is_installed(module: str) -> bool:
    """Return True if a top-level module can be found; imports nothing."""
    try:
        return find_spec(module) is not None
    except ValueError:  # an entry of `sys.modules` without a spec, e.g. a stub
        return False


def _needed(job: JobSpec) -> Iterator[tuple[str, str]]:
    yield from _of_urls("output", {"path": job.output.path})
    for loc, kind, node in constructs(job.model_dump(mode="json")):
        place = show_loc(loc)
        if module := _OF_TYPE.get((kind, node["type"])):
            yield place, module
        if kind == "source":
            given = node.get("format")
            form = given.get("type") if isinstance(given, dict) else given
            if module := _OF_TYPE.get(("format", str(form))):
                yield f"{place}.format", module
        # The source `spark` reads paths and URLs with its own packages.
        if node["type"] != "spark":
            yield from _of_urls(place, node)


def _of_urls(place: str, node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in _PLACES:
        given = node.get(key)
        for text in given if isinstance(given, list | tuple) else [given]:
            scheme = text.partition("://")[0].lower() if isinstance(text, str) and "://" in text else ""
            if module := _OF_SCHEME.get(scheme):
                yield f"{place}.{key}", module
