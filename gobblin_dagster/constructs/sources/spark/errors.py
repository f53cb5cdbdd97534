"""Turn errors of Spark into one line, with a hint what to do."""

from __future__ import annotations

import re
import traceback

from gobblin_dagster.core.errors import ExtractError, GobblinDagsterError, SparkLostError, TransientError

_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .+")
_CLASS = re.compile(r"^(?:: )?[\w.$]+(?:Exception|Error): ")
_PACKAGES = {
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    "delta": "io.delta:delta-spark_4.1_2.13:4.2.0",
    "avro": "org.apache.spark:spark-avro_2.13:4.1.1",
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
}
_ABSENT = re.compile(
    "DATA_SOURCE_NOT_FOUND|Failed to find (the )?data source|Cannot find catalog plugin class", re.IGNORECASE
)
_FEED_HINT = (
    " Rows that versions added are read from the change data feed: turn it on with `alter table ... set tblproperties "
    "(delta.enableChangeDataFeed = true)`, then `gobblin state reset` the dataset: the feed has no earlier changes."
)
_LOST = ("Job aborted due to stage failure", "StatusCode.UNAVAILABLE", "Connection refused", "was cancelled")
_OF_GRPC = re.compile(r'^\s*details = "(.+)"$', re.MULTILINE)
_MAX = 500


def spark_problem(error: Exception) -> str:
    """Return the line of a Spark error that says what is wrong, with a hint if a package is missing."""
    text = str(error)
    conditions = _CONDITION.findall(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = conditions[0] if conditions else next((line for line in lines if _is_telling(line)), type(error).__name__)
    problem = _without_class(first)
    if "FAILED_READ_FILE" in first and (cause := _cause(lines)):
        problem = f"{problem}: {_without_class(cause)}"  # for an unreadable file, only the cause says why
    feed = _FEED_HINT if "DELTA_MISSING_CHANGE_DATA" in text else ""
    return f"{problem}.{feed}{_package_hint(text)}"


def _cause(lines: list[str]) -> str:
    """Return what the first cause says, in the line of its class or the next one; empty if there is no cause."""
    at = next((number for number, line in enumerate(lines) if line.startswith("Caused by: ")), len(lines))
    said = [line.removeprefix("Caused by: ") for line in lines[at : at + 2]]
    return said[-1] if said and said[0].endswith(":") else "".join(said[:1])


def said_by_spark(error: Exception) -> str:
    """Return the line that says why a Spark job failed: the Python worker's exception, or else the first line."""
    text = str(error).strip()
    traceback = text.rpartition("Traceback (most recent call last):")[2] if "Traceback (most" in text else ""
    raised = next((line for line in traceback.splitlines() if line and not line.startswith(" ")), "")
    if not raised and text.startswith("<") and (details := _OF_GRPC.search(text)):
        raised = f"the server of Spark Connect: {details[1]}"
    return (raised or text.partition("\n")[0] or type(error).__name__)[:_MAX]


def spark_gone(error: Exception) -> SparkLostError | None:
    """Return our error for a call to a JVM that has ended; None for any other error.

    Spark dresses some of these as errors of what was asked for, such as a schema that cannot be parsed.
    """
    one: BaseException | None = error
    while one is not None:
        if type(one).__name__ == "Py4JNetworkError" or (isinstance(one, OSError) and _is_raised_by_py4j(one)):
            return SparkLostError(problem="Spark has ended: its JVM crashed or was killed.")
        one = one.__cause__ or one.__context__
    return None


def read_error(error: Exception, dataset_urn: str) -> GobblinDagsterError:
    """Return our error for a failed read: TransientError if Spark lost tasks or its server, else ExtractError."""
    if (gone := spark_gone(error)) is not None:
        return gone
    problem = spark_problem(error)
    if any(sign in str(error) for sign in _LOST) and not _CONDITION.search(str(error)):
        return TransientError(problem=f"Dataset {dataset_urn!r}: Spark lost this work unit: {problem}")
    return ExtractError(dataset_urn=dataset_urn, file="(read by Spark)", problem=problem)


def _without_class(line: str) -> str:
    return re.sub(r" ?SQLSTATE: \w+.*$", "", _CLASS.sub("", line))[:_MAX].rstrip(" .;")


def _is_raised_by_py4j(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "/py4j/" in frames[-1].filename


def _is_telling(line: str) -> bool:
    """Return False for py4j's line before the message."""
    return not line.startswith("An error occurred while calling")


def _package_hint(text: str) -> str:
    """Return a hint that names the missing package of a format, catalog or driver; empty if none is missing."""
    if "No suitable driver" in text:
        return " Add its JDBC driver to gobblin.yaml: `spark: {conf: {spark.jars.packages: group:artifact:version}}`."
    if not _ABSENT.search(text):
        return ""
    name = next((name for name in _PACKAGES if re.search(rf"\b{name}\b", text, re.IGNORECASE)), None)
    package = _PACKAGES[name] if name is not None else "group:artifact:version"
    return f" Add its package to gobblin.yaml: `spark: {{conf: {{spark.jars.packages: {package}}}}}`."
