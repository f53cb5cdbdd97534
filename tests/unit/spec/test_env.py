from __future__ import annotations

import pytest

from gobblin_dagster.spec.env import expand

ENVIRON = {"HOST": "db.example", "PORT": "5432", "EMPTY": "", "ODD": "a ${HOST} $$ b"}


@pytest.mark.parametrize(
    ("written", "text"),
    [
        pytest.param("plain", "plain", id="no reference"),
        pytest.param("${HOST}", "db.example", id="whole"),
        pytest.param("x://${HOST}:${PORT}/y", "x://db.example:5432/y", id="inside"),
        pytest.param("${NONE:-default}", "default", id="default of an unset variable"),
        pytest.param("${EMPTY:-default}", "default", id="default of an empty variable"),
        pytest.param("${HOST:-default}", "db.example", id="default not needed"),
        pytest.param("${NONE:-}", "", id="empty default"),
        pytest.param("${NONE:-a:-b\nc}", "a:-b\nc", id="default with odd text"),
        pytest.param("${EMPTY}", "", id="empty variable"),
        pytest.param("$$", "$", id="literal dollar"),
        pytest.param("$${HOST}", "${HOST}", id="literal reference"),
        pytest.param("$$${HOST}", "$db.example", id="literal dollar, then reference"),
        pytest.param("^a$", "^a$", id="regular expression"),
        pytest.param("$1 and $HOST", "$1 and $HOST", id="other dollars"),
        pytest.param("${ODD}", "a ${HOST} $$ b", id="values are not expanded again"),
    ],
)
def test_expand_replaces_references(written: str, text: str) -> None:
    expanded = expand(written, ENVIRON)
    assert expanded.text == text
    assert not expanded.problems


@pytest.mark.parametrize(
    ("written", "is_whole"), [("${HOST}", True), ("${NONE:-5}", True), ("x${HOST}", False), ("$$", False)]
)
def test_expand_tells_whether_the_text_was_one_reference(written: str, is_whole: bool) -> None:
    assert expand(written, ENVIRON).is_whole is is_whole


def test_expand_unset_variable_names_it_and_the_remedy() -> None:
    expanded = expand("${A} and ${B}", {})
    assert expanded.text == "${A} and ${B}"
    assert expanded.problems == (
        "environment variable A is not set; set it, or give a default: ${A:-...}",
        "environment variable B is not set; set it, or give a default: ${B:-...}",
    )


@pytest.mark.parametrize("written", ["${}", "${1A}", "${A B}", "${A", "${A-x}", "text ${"])
def test_expand_malformed_reference_is_a_problem(written: str) -> None:
    (problem,) = expand(written, {"A": "x"}).problems
    assert "is not a reference" in problem
    assert "$$" in problem


def test_expand_remembers_what_was_read_so_that_it_can_be_hidden() -> None:
    assert expand("${HOST}:${NONE:-1}", ENVIRON).values == (("${HOST}", "db.example"),)


def test_reference_in_a_default_is_plain_text_and_reads_no_variable() -> None:
    found = expand("${OK:-${BAD}}", {"BAD": "secret"})
    assert (found.text, found.values, found.problems) == ("${BAD}", (), ())
