"""Writing a folder of Gobblin's files and reading one of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import InvalidSpecError
from gobblin_dagster.engine.validation import check_construct
from gobblin_dagster.spec.job import ConstructSpec
from gobblin_dagster.spec.load import GobblinFiles, LoadedJob, load_job

KAFKA = """\
job.name=orders
source.class=org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleSource
kafka.brokers=localhost:9092
data.publisher.final.dir=/lake
"""
"""The least that a job needs."""


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files by their paths below `jobs`; return the first."""
    for name, text in files.items():
        path = folder / "jobs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "jobs" / next(iter(files))


def load(folder: Path, text: str, /, classes: Any = None, name: str = "orders.pull", **environ: str) -> LoadedJob:
    """Load a job of one file."""
    return load_file(write(folder, {name: text}), folder, classes, **environ)


def load_file(path: Path, folder: Path, classes: Any = None, **environ: str) -> LoadedJob:
    """Load a job file of a folder that `write` made."""
    own = {key: ConstructSpec.model_validate(spec) for key, spec in (classes or {}).items()}
    return load_job(path, check_construct, environ, GobblinFiles(folder / "jobs", own))


def faults(folder: Path, text: str, /, classes: Any = None, name: str = "orders.pull", **environ: str) -> list[str]:
    """Return the faults of a job of one file, one text each: `line key: problem`."""
    path = write(folder, {name: text})
    return faults_of(path, folder, classes, **environ)


def faults_of(path: Path, folder: Path, classes: Any = None, **environ: str) -> list[str]:
    """Return the faults of a job file."""
    with pytest.raises(InvalidSpecError) as caught:
        load_file(path, folder, classes, **environ)
    return [
        f"{Path(fault.file).name + ':' if fault.file else ''}{fault.line} {fault.path}: {fault.problem}"
        for fault in caught.value.faults
    ]
