"""Packages that only some jobs need. If one is missing, the error says what needs it and how to install it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from gobblin_dagster.core.errors import EnvironmentFaultError


@dataclass(frozen=True, slots=True)
class Extra:
    """An optional package."""

    package: str
    """The name that `pip install` takes, e.g. `confluent-kafka`."""
    purpose: str
    """What needs the package, e.g. `Avro`."""
    extra: str
    """The extra of `gobblin-dagster` that installs the package; empty if none does."""

    def missing(self) -> str:
        """Return two sentences: the package is missing, and how to install it."""
        return f"{self._problem} {self._hint}"

    def error(self) -> EnvironmentFaultError:
        """Return the error to raise if the package is missing."""
        return EnvironmentFaultError(problem=self._problem, hint=self._hint)

    @property
    def _problem(self) -> str:
        return f"The package {self.package} is not installed; it is needed for {self.purpose}."

    @property
    def _hint(self) -> str:
        return f"Install it with: pip install '{f'gobblin-dagster[{self.extra}]' if self.extra else self.package}'."


EXTRAS: Mapping[str, Extra] = {
    "adbc_driver_postgresql": Extra("adbc-driver-postgresql", "reading PostgreSQL as Arrow", "postgres"),
    "boto3": Extra("boto3", "paths that begin with s3://", "s3"),
    "botocore": Extra("boto3", "paths that begin with s3://", "s3"),
    "confluent_kafka": Extra("confluent-kafka", "Kafka", "kafka"),
    "cryptography": Extra("cryptography", "encrypted columns", "crypto"),
    "deltalake": Extra("deltalake", "the publisher `delta`", "delta"),
    "fastavro": Extra("fastavro", "Avro", "avro"),
    "google.rpc": Extra("googleapis-common-protos", "Spark Connect", "connect"),
    "grpc": Extra("grpcio", "Spark Connect", "connect"),
    "grpc_status": Extra("grpcio-status", "Spark Connect", "connect"),
    "hdfs_native": Extra("hdfs-native", "paths that begin with hdfs://", "hdfs"),
    "hocon": Extra("hocon-parser", "files in HOCON (.conf, .json, .configuration, .template)", "hocon"),
    "psycopg2": Extra("psycopg2-binary", "PostgreSQL", "postgres"),
    "pyiceberg": Extra("pyiceberg", "the publisher `iceberg`", "iceberg"),
    "pymysql": Extra("pymysql", "MySQL and MariaDB", "mysql"),
    "sshfs": Extra("sshfs", "paths that begin with sftp://", "sftp"),
    "zstandard": Extra("zstandard", "Spark Connect", "connect"),
}
"""The packages of the extras that jobs need, by the name of the module that code imports."""
_FOR_TESTS = {"pytest": Extra("pytest", "the conformance classes", "conformance")}


def extra_of(module: str) -> Extra:
    """Return the package of a module; if no extra of ours installs it, the package is called as the module is."""
    return EXTRAS.get(module) or _FOR_TESTS.get(module) or Extra(module, "a part of a package of your own", "")


@contextmanager
def optional_package(module: str) -> Iterator[None]:
    """Turn an ImportError inside this block into an error that says how to install the package.

    Args:
        module: the module that the block imports.

    Raises:
        EnvironmentFaultError: the package is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise extra_of(module).error() from error


def missing_package(error: BaseException) -> EnvironmentFaultError | None:
    """Return the error to raise instead, if a package of our extras is missing; None for other errors.

    For imports that `optional_package` cannot surround: those inside pyspark, SQLAlchemy and classes of users.
    """
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    extra = EXTRAS.get(name) or EXTRAS.get(name.partition(".")[0])
    return extra.error() if extra is not None else None
