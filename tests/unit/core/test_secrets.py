from __future__ import annotations

import json
import pickle
from urllib.parse import quote, quote_plus, urlencode

import pytest

from gobblin_dagster.core.errors import ConvertError, TransientError
from gobblin_dagster.core.secrets import (
    as_written,
    give,
    hidden,
    hide_environment,
    known_in,
    known_values,
    remember,
    variable,
)
from gobblin_dagster.spec.env import expand

SECRET = "s3cr3t-Word!9"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"near '{SECRET}'", "near '${PW}'"),
        (f"{SECRET}{SECRET}", "${PW}${PW}"),
        (f"cut short: {SECRET[:6]}…", "cut short: ${PW}…"),
        (f"cut short: {SECRET[:6]}...", "cut short: ${PW}..."),
        (f"cut by MySQL: near 'x = '{SECRET[:6]}' at line 1", "cut by MySQL: near 'x = '${PW}' at line 1"),
        (f"(1064, 'near \\'{SECRET[:6]}\\' at line 2')", "(1064, 'near \\'${PW}\\' at line 2')"),
        (f"cut at the end {SECRET[:-1]}", "cut at the end ${PW}"),
        (f"a word that only begins alike: {SECRET[:6]}ive", f"a word that only begins alike: {SECRET[:6]}ive"),
        ("nothing", "nothing"),
    ],
)
def test_values_are_replaced_whole_and_where_they_were_cut_short(text: str, shown: str) -> None:
    remember({SECRET: "${PW}"})
    assert hidden(text) == shown


ODD = "Pa'ss\"w\\o%r/d é+$7"


@pytest.mark.parametrize(
    "text",
    [
        str([ODD]),
        str(({"a": [ODD]}, repr([ODD]), ODD.encode())),
        json.dumps({"url": repr(ODD)}),
        ascii([ODD]),
        f"GET /x?key={quote(ODD)}&z={quote_plus(ODD)}",
        f"GET /x?{urlencode({'key': ODD})}",
        f"GET /x?key={quote(ODD).replace('%C3%A9', '%c3%a9').replace('%2B', '%2b').replace('%5C', '%5c')}",
        "LINE 1: select '{}' as x".format(ODD.replace("'", "''")),
        json.dumps({"sql": "select '{}' as x".format(ODD.replace("'", "''"))}),
        'a,"{}"'.format(ODD.replace('"', '""')),
    ],
    ids=["list", "nested", "json", "ascii", "quoted", "encoded", "small", "sql", "sql in json", "csv"],
)
def test_values_are_hidden_as_libraries_quote_them(text: str) -> None:
    remember({ODD: "${PW}"})
    assert "ss" not in hidden(text)


@pytest.mark.parametrize("value", ["abc", "true", "NULL", "8080", "54321"])
def test_values_that_are_everywhere_are_not_hidden(value: str) -> None:
    remember({value: "${X}"})
    assert hidden(f"a {value} b") == f"a {value} b"


def test_password_of_a_url_is_hidden_by_itself_as_written_and_as_meant() -> None:
    remember({"postgresql://u:p%40ssword@h/db": "${URL}", "jdbc:x://h/db?user=u&password=word!9": "${JDBC}"})
    assert hidden("p%40ssword p@ssword word!9") == "${URL} ${URL} ${JDBC}"
    remember({"mysql://u:pass/wo?d#9@h/db": "${MY}", "mysql://h/db?passwd=other-word": "${TWO}"})
    assert hidden("pass/wo?d#9 other-word") == "${MY} ${TWO}"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("LAKE_TOKEN", SECRET, "${LAKE_TOKEN}"),
        ("MY_KEY", SECRET, "${MY_KEY}"),
        ("STATE_URL", "postgresql://u:pass-w0rd@h/db", "postgresql://u:${STATE_URL}@h/db"),
        ("PGPASSWORD", "postgres", "postgres"),
        ("STAGE", "production-2", "production-2"),
        ("API_KEY_FILE", "keys-1.json", "keys-1.json"),
        ("GOOGLE_CREDENTIALS", "/etc/google-1.json", "/etc/google-1.json"),
        ("A_TOKEN", "123", "123"),
    ],
    # pytest writes the name of a test into the environment
    ids=["token", "key", "url", "word", "setting", "name of a file", "path", "short"],
)
def test_secrets_of_the_environment_are_hidden_also_if_no_file_names_them(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, shown: str
) -> None:
    monkeypatch.setenv(name, value)
    hide_environment()
    assert hidden(f"at {value}.") == f"at {shown}."
    assert not known_values()


def test_every_error_of_ours_is_hidden_also_in_another_process() -> None:
    remember({SECRET: "${PW}"})
    error = ConvertError(dataset_urn="a", construct="converter 'sql'", problem=f"no column {SECRET}")
    assert SECRET not in str(error)
    assert "${PW}" in str(pickle.loads(pickle.dumps(error)))
    assert str(TransientError(problem=SECRET)) == "${PW}"
    assert repr(TransientError(problem=SECRET)) == "TransientError(problem='${PW}')"
    assert "problem='no column ${PW}'" in repr(error)


def test_job_takes_along_only_what_stands_in_it() -> None:
    remember({SECRET: "${PW}", "of another job": "${OTHER}", 'with "quotes"': "${Q}"})
    assert known_in('{"select": "s3cr3t-Word!9, with \\"quotes\\""}') == {SECRET: "${PW}", 'with "quotes"': "${Q}"}


def test_texts_are_written_with_references_that_give_them_again() -> None:
    remember({SECRET: "${PW}", f"{SECRET}-long": "${LONG:-none}", f"x://u:{SECRET}9@h": "${URL}", "abc": "${SHORT}"})
    texts = [SECRET, f"{SECRET}-long", f"Bearer {SECRET}{SECRET} $5 ${{X}}", f"x://u:{SECRET}9@h/db"]
    written = [as_written(text) or "" for text in texts]
    assert written == ["${PW}", "${LONG}", "Bearer ${PW}${PW} $$5 $${X}", "${URL}/db"]
    assert [expand(text, known_values()).text for text in written] == texts
    assert as_written("abc $5") is None


class Interrupted(str):
    """A text during whose search another thread loads a job with more variables."""

    def __contains__(self, part: object) -> bool:
        remember({f"{part}, again": "${NEW}"})
        return str(part) in str(self)


def test_texts_are_written_while_another_thread_loads_a_job() -> None:
    remember({SECRET: "${PW}"})
    assert as_written(Interrupted(f"Bearer {SECRET}")) == "Bearer ${PW}"


def test_password_in_a_value_is_not_taken_for_the_value() -> None:
    url = f"x://u:{SECRET}@h"
    remember({url: "${URL}"})
    remember(known_in(f'"{url}"'))
    assert known_values() == {"URL": url}


def test_variable_that_is_set_goes_before_one_that_was_given_and_a_given_one_is_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SET", "of the environment")
    asked: list[str] = []

    class Asked(dict[str, str]):
        def __getitem__(self, name: str) -> str:
            asked.append(name)
            return f"value of {name}"

    give(["SET", "GIVEN", "UNUSED"], Asked())
    assert asked == [], "values are looked up when they are needed"
    assert (variable("SET"), variable("GIVEN"), variable("OTHER")) == ("of the environment", "value of GIVEN", None)
    assert asked == ["GIVEN"]
    assert hidden("got value of GIVEN") == "got ${GIVEN}"
