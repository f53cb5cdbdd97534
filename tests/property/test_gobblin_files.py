"""Whatever stands in a job file of Gobblin's, it is a job or a list of faults; and its YAML is the same job."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gobblin_dagster.core.errors import InvalidSpecError, SpecFault
from gobblin_dagster.engine.validation import check_construct
from gobblin_dagster.spec.env import expand
from gobblin_dagster.spec.gobblin.entries import escaped
from gobblin_dagster.spec.gobblin.keys import KEYS
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.load import GobblinFiles, load_job
from tests.unit.spec.gobblin.files import KAFKA

NAMES = sorted({key.name.replace("*", "x") for key in KEYS})
TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["true", "false", "0", "-1", "7", "1e9", "a,b", "AVRO", "${job.name}", "${env:HOME}", "${x}", "FAIL"]
    ),
    st.sampled_from(
        sorted({"IdentityForkOperator", "SamplingConverter", "RowCountPolicy", "[]", "{}", '[{"name": 1}]'})
    ),
)
LINES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["", "", ".0", ".1", ".99"]), TEXTS),
    max_size=12,
    unique_by=lambda one: one[:2],
)


def load(text: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(text, encoding="utf-8")
        files = GobblinFiles(path.parent)
        job: JobSpec | None = None
        faults: tuple[SpecFault, ...] = ()
        try:
            job = load_job(path, check_construct, {"HOME": "/h"}, files).spec
        except InvalidSpecError as error:
            faults = error.faults
        assert (job is None) == bool(faults)
        if job is not None:
            again = Path(folder, "job.yaml")
            again.write_text(files.read(path, {"HOME": "/h"}).yaml, encoding="utf-8")
            assert load_job(again, check_construct, {"HOME": "/h"}).spec == job


@settings(max_examples=150)
@given(LINES)
@example([("converter.classes", ".1", "SamplingConverter"), ("fork.branches", "", "2")])
def test_properties_with_any_value_of_any_key(lines: list[tuple[str, str, str]]) -> None:
    own = {line.partition("=")[0] for line in KAFKA.splitlines()}
    body = "".join(f"{name}{index}={text}\n" for name, index, text in lines if name not in own or index)
    load(KAFKA + body, "job.pull")


@settings(max_examples=60)
@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    load(text.replace("\x00", ""), "job.pull")
    load(text.replace("\x00", ""), "job.conf")


@given(st.text(alphabet="$${}aA_:-", max_size=20))
def test_escaped_text_is_read_back_as_it_was(text: str) -> None:
    assert expand(escaped(text), {}).text == text
