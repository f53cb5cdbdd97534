"""Check a job against its project's allow lists (`core.allow`): when the project is opened, and again in each task.

Checks every name in the declaration, which covers all that built-in constructs use. Files that a pattern finds are
checked one by one when they are opened, because a link may lead out of an allowed folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.core.errors import GobblinDagsterError, InvalidSpecError, SpecFault
from gobblin_dagster.core.known_settings import DELTA, ICEBERG, KAFKA, SPARK, Settings
from gobblin_dagster.core.secrets import hidden, variable
from gobblin_dagster.spec.document import Loc, show_loc
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.load import constructs

_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_TEXTS = frozenset({"select", "where", "rule", "sql", "query", "columns", "format", "branches", "aggregates", "rename"})
"""Keys whose texts are never targets (`module:Class`), although they may look like one."""
_PATHS = frozenset({"path", "paths", "schema_file", "warehouse", "unix_socket", "registry"})
_PATH_ENDS = (".location", "_file", ".file", "_path", ".path", "keytab", "service_account", "application_credentials")
"""Ends of options of our own and of clients (Kafka, deltalake, pyiceberg) that name a file or a folder."""
_NAMED = frozenset({"columns", "branches", "aggregates", "rename"})
"""Options whose keys are names of columns or branches: a column `path` names no file."""
_SPARK_SQL = ("query", "sql")
_BROKERS = ("brokers", "bootstrap.servers", "metadata.broker.list", "kafka.bootstrap.servers")
"""Options that name Kafka's brokers: ours, librdkafka's and Spark's."""
_SERVER_ENDS = ("endpoint", "host", "_url", "-uri", ".uri", ".nodes")
"""Ends of options that name a server, also without a scheme (`s3.endpoint: minio:9000`, `hdfs.host: name-node`,
`es.nodes: search:9200`)."""
_CODE = ("plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.id", "ssl.engine.location", "ssl.providers")
"""Settings of librdkafka that name a library to load or a command to run."""
_SETTINGS: dict[str, Settings] = {
    "catalog": ICEBERG,
    "catalog_env": ICEBERG,
    "config": KAFKA,
    "config_env": KAFKA,
    "storage_options": DELTA,
    "storage_options_env": DELTA,
}
"""Options of our constructs that are handed to a client as they are."""
_DATA = frozenset(
    {"select", "where", "rule", "branches", "aggregates", "columns", "rename", "values", "equals", "null_values"}
) | {"nulls", "matches", "pattern", "separator", "delimiter"}
"""Options of our constructs with names and values of data, and SQL for DuckDB, which reaches no files and servers."""
_SENT = frozenset({"params", "newest_params", "body", "headers"})
"""Options of the source `rest` that are sent to its server as they are."""
_SPARK_FILES = frozenset(
    {"parquet", "csv", "json", "orc", "avro", "text", "xml", "binaryfile", "delta", "iceberg", "libsvm", "image"}
)
"""Formats that Spark takes for the namespace of a table whose name is then a path: `csv.folder`."""
_TABLE = re.compile(r"[\w{}.-]*")
"""A table's name without signs of a path, and of a variable whose value Spark puts into it: `${env:HOME}`."""
_LOCAL = re.compile(r"/|file:", re.IGNORECASE)
_SPARK_NAME = re.compile(r"(?!\.*$)[\w .=+!*?\[\]-]*")
"""Names of datasets that stay in their folder, in a path or a table of Spark, and in their place in other options."""


def faults_of(job: JobSpec, base_dir: str, lists: AllowLists) -> tuple[SpecFault, ...]:
    """Return every name in a job that the lists do not allow, each with its place in the file."""
    return () if lists.is_open else _faults(job.model_dump_json(), base_dir, lists)


def require_allowed(job: JobSpec, base_dir: str, lists: AllowLists, run_id: str = "") -> None:
    """Raise InvalidSpecError with every name in the job that the lists do not allow.

    With a run id, a process looks once per run: links, and values of secrets, may be others in its next run.
    """
    if lists.is_open:
        return
    faults = _in_run(run_id, job.model_dump_json(), base_dir, lists) if run_id else faults_of(job, base_dir, lists)
    if faults:
        raise InvalidSpecError(file=f"Job {job.job!r}", faults=faults)


def option_problems(options: dict[str, Any], base_dir: str, lists: AllowLists) -> list[str]:
    """Return what the lists do not allow in options that are no job's, such as those of a client, with their keys."""
    found = _Checker("", "", base_dir, lists).problems((), options)
    return [f"{show_loc(loc)}: {problem}" for loc, problem in found if problem]


@lru_cache(maxsize=64)
def _in_run(run_id: str, job_json: str, base_dir: str, lists: AllowLists) -> tuple[SpecFault, ...]:
    """Check a job once per run and process, not once per work unit."""
    return _faults(job_json, base_dir, lists)


def _faults(job_json: str, base_dir: str, lists: AllowLists) -> tuple[SpecFault, ...]:
    document = json.loads(job_json)
    found: list[tuple[Loc, str]] = []
    found += _Checker("output", "", base_dir, lists).problems(("output",), {"path": document["output"]["path"]})
    for loc, kind, node in constructs(document):
        if kind == ConstructKind.SOURCE:
            source = registry.short_name(ConstructKind.SOURCE, node["type"])
            found.append(((*loc, "type"), lists.source_problem(source)))
        name = _own_name(kind, node["type"], lists)
        found += _Checker(kind, name, base_dir, lists).problems(loc, node)
        if (kind, name) == (ConstructKind.PUBLISHER, "iceberg") and lists.is_limited:
            found.append(((*loc, "catalog_name"), _catalog_problem(str(node.get("catalog_name", "default")))))
    return tuple(SpecFault(show_loc(loc), problem) for loc, problem in found if problem)


def _own_name(kind: str, type_name: str, lists: AllowLists) -> str:
    """Return our short name of a type, also if a job names our class by a module that is allowed."""
    name = registry.short_name(ConstructKind(kind), type_name)
    if ":" not in name or lists.module_problem(name):
        return name
    try:
        found = registry.load(ConstructKind(kind), name)
    except GobblinDagsterError:
        return name  # planning says what is wrong with it
    target = f"{found.__module__}:{found.__qualname__}"
    return next((own for own, one in registry.types(ConstructKind(kind)).items() if one == target), name)


def _catalog_problem(name: str) -> str:
    """Return why the lists do not allow a catalog: pyiceberg would add settings that they do not see."""
    try:
        from pyiceberg.utils.config import Config  # noqa: PLC0415 - optional package, slow to import

        is_known = Config().get_catalog_config(name) is not None
    except ImportError:
        return ""
    except Exception as error:  # noqa: BLE001 - errors of YAML and of its contents
        return (
            f"pyiceberg's own configuration cannot be read ({type(error).__name__}), and `allow` of gobblin.yaml is set"
        )
    if not is_known:
        return ""
    return (
        f"pyiceberg's own configuration (.pyiceberg.yaml, PYICEBERG_CATALOG__...) has settings of the catalog {name!r} "
        "that `allow` of gobblin.yaml does not see; choose another name, or take them out and name all in `catalog`"
    )


class _Checker:
    """Checks the options of one construct."""

    def __init__(self, kind: str, type_name: str, base_dir: str, lists: AllowLists) -> None:
        self._is_own = ":" not in type_name
        self._is_spark = (kind, type_name) == ("source", "spark")
        self._is_rest = (kind, type_name) == ("source", "rest")
        self._base_dir = base_dir
        self._lists = lists

    def problems(self, loc: Loc, value: Any, key: str = "") -> Iterator[tuple[Loc, str]]:
        """Yield (place, problem) of a value and of all values below it; an empty problem means allowed."""
        settings = self._settings(key) if isinstance(value, dict) else None
        if settings is not None:
            yield from self._of_settings(loc, value, settings, are_variables=key.endswith("_env"))
        elif isinstance(value, dict):
            for name, part in value.items():
                if key.endswith("_env"):
                    yield from self._of_variable((*loc, name), str(name), str(part))
                else:
                    is_named = key in _NAMED or (self._is_rest and key in _SENT)
                    yield from self.problems((*loc, name), part, key if is_named else str(name))
        elif isinstance(value, list | tuple):
            for number, part in enumerate(value):
                yield from self.problems((*loc, number), part, key)
        elif isinstance(value, str) and value and key.endswith("_env"):
            yield from self._of_variable(loc, key.removesuffix("_env"), value)
        elif isinstance(value, str) and value:
            yield loc, (self._is_spark and self._of_spark(loc, key.lower(), value)) or self._text(key, value)

    def _settings(self, key: str) -> Settings | None:
        """Return the settings that a client knows of an option, if it is one that a client gets as it is."""
        if self._is_spark and key == "options":
            return SPARK
        return _SETTINGS.get(key) if self._is_own else None

    def _of_settings(
        self, loc: Loc, options: dict[str, Any], known: Settings, *, are_variables: bool
    ) -> Iterator[tuple[Loc, str]]:
        """Yield (place, problem) of each setting that a client gets as it is."""
        for name, value in options.items():
            place, text = (*loc, name), str(value)
            if not are_variables:
                problem = self._of_spark(place, name.lower(), text) if self._is_spark else ""
                yield place, problem or self._lists.setting_problem(known, name, text, self._base_dir)
            elif problem := self._lists.variable_problem(text):
                yield place, problem
            else:
                with suppress(GobblinDagsterError):  # without a value nothing can be used; who needs it says why
                    problem = self._lists.setting_problem(known, name, variable(text) or "", self._base_dir)
                yield place, problem and hidden(f"the value of the environment variable {text}: {problem}")

    def _of_variable(self, loc: Loc, key: str, name: str) -> Iterator[tuple[Loc, str]]:
        """Yield (place, problem) of an option that names a variable, and of the value that the option has by it."""
        problem = self._lists.variable_problem(name)
        yield loc, problem
        if problem or not _names_a_place(key.lower()):
            return  # other values, such as passwords, may have any form
        with suppress(GobblinDagsterError):  # without a value nothing can be used; who needs it says why
            for place, found in self.problems(loc, variable(name) or "", key):
                yield place, found and hidden(f"the value of the environment variable {name}: {found}")

    def _of_spark(self, loc: Loc, key: str, text: str) -> str:
        """Return why a text of the source `spark` is not allowed, for reasons that only Spark has."""
        has_paths = self._lists.paths is not None
        is_bound = self._lists.is_limited
        problem = ""
        is_sql = (key in _SPARK_SQL and "options" not in loc) or (key == "table" and not _TABLE.fullmatch(text))
        if is_bound and is_sql:
            problem = (
                "Spark's SQL can read any path and variable and call any method of Java, and `allow` of gobblin.yaml "
                "limits paths, variables, modules or hosts; read a `path` or a `table`"
            )
        elif self._lists.environment is not None and "${" in text:
            problem = (
                "Hadoop and Spark put variables of the machine into `${...}`, and `allow.environment` of gobblin.yaml "
                "is set; write the text without them"
            )
        elif has_paths and key == "table" and text.partition(".")[0].lower() in _SPARK_FILES:
            problem = (
                f"Spark reads the folder of the table {text!r}, and `allow.paths` of gobblin.yaml is set; give a `path`"
            )
        elif key == "format":
            problem = self._lists.setting_problem({"format": "class"}, key, text)
        elif has_paths and key == "paths":
            problem = "a list of paths is not checked, and `allow.paths` of gobblin.yaml is set; give one `path`"
        elif is_bound and key == "datasets" and not _SPARK_NAME.fullmatch(text):
            problem = (
                f"the dataset {text!r} may lead out of what `allow` of gobblin.yaml names, as it is put into paths and "
                "options; use letters, digits, blanks and _ . - = +"
            )
        return problem

    def _text(self, key: str, text: str) -> str:
        """Return why a text is not allowed, by its key and by its form; empty if it is allowed."""
        lists, key = self._lists, key.lower()  # options of Spark count in any case
        is_url = "://" in text or text.startswith("jdbc:")
        is_path = key in _PATHS or key.endswith(_PATH_ENDS) or (self._is_spark and _LOCAL.match(text) is not None)
        problem = ""
        if (self._is_own and not self._is_spark and key in _DATA) or (self._is_rest and key in _SENT):
            pass
        elif key in _BROKERS or (key.endswith(_SERVER_ENDS) and not is_url and not self._is_rest):
            problem = lists.addresses_problem(text)
        elif key in _CODE:
            problem = lists.module_problem(text)
        elif key.startswith("py-"):  # pyiceberg imports the classes that these options name
            problem = lists.module_problem(":".join(text.rsplit(".", 1)))
        elif is_url or (is_path and not self._is_rest):
            problem = lists.url_problem(text, self._base_dir) if is_url else ""
            if is_path and not self._is_rest:  # of whatever scheme a URL is
                problem = problem or lists.path_problem(text, self._base_dir)
        elif key not in _TEXTS and _TARGET.fullmatch(text):
            problem = lists.module_problem(text)
        return problem


def _names_a_place(key: str) -> bool:
    """Return whether an option, in lower case, names a file, a server, or code."""
    known = {*_PATHS, *_BROKERS, *_CODE, "url", "uri"}
    return key in known or key.endswith((*_PATH_ENDS, *_SERVER_ENDS)) or key.startswith("py-")
