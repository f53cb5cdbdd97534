from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.spec import document as module
from gobblin_dagster.spec.document import Document, is_meant_as_file, read_document


def read(text: str, **environ: str) -> Document:
    return read_document(text.encode(), environ)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("NO", "NO"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("5", 5),
        ("-7", -7),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("-.inf", float("-inf")),
        ("2013-01-01", "2013-01-01"),
        ("2013-01-01 10:00:00", "2013-01-01 10:00:00"),
        ('"5"', "5"),
        ("'true'", "true"),
        ("!!str 5", "5"),
        ("!!int '5'", 5),
    ],
)
def test_plain_values_follow_the_core_rules_of_yaml(text: str, value: Any) -> None:
    document = read(f"key: {text}\n")
    assert document.faults == []
    assert document.data == {"key": value}
    assert type(document.data["key"]) is type(value)


def test_lines_are_those_of_keys_and_items() -> None:
    document = read("a: 1\nb:\n  - x\n  - y: 2\n    z: [3,\n      4]\n")
    assert document.lines == {
        (): 1,
        ("a",): 1,
        ("b",): 2,
        ("b", 0): 3,
        ("b", 1): 4,
        ("b", 1, "y"): 4,
        ("b", 1, "z"): 5,
        ("b", 1, "z", 0): 5,
        ("b", 1, "z", 1): 6,
    }
    assert document.line(("b", 1, "missing", "deeper")) == 4


def test_keys_are_text_whatever_they_look_like() -> None:
    assert read("5: a\ntrue: b\n2013-01-01: c\n").data == {"5": "a", "true": "b", "2013-01-01": "c"}


def test_duplicate_key_is_refused_with_both_lines() -> None:
    document = read("a: 1\nb: 2\na: 3\n")
    assert document.data == {"a": 1, "b": 2}
    assert document.faults == [(("a",), "the key appears twice, first in line 1", 3)]


def test_aliases_and_merge_keys_work_and_own_keys_win() -> None:
    document = read(
        "base: &base {x: 1, y: 2}\nmore: &more {z: 9, x: 8}\none:\n  y: 3\n  <<: *base\ntwo: {<<: [*base, *more]}\n"
    )
    assert document.faults == []
    assert document.data["one"] == {"x": 1, "y": 3}
    assert document.data["two"] == {"x": 1, "y": 2, "z": 9}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: !!python/object/apply:os.system [ls]\n", "is not allowed", id="python object"),
        pytest.param("a: !mine 5\n", "does not fit its tag", id="own tag on a value"),
        pytest.param("a: !mine {b: 1}\n", "is not allowed", id="own tag on a mapping"),
        pytest.param("a: !!int five\n", "does not fit its tag", id="tag that does not fit"),
        pytest.param("a: &a [*a]\n", "alias refers to a part that holds it", id="alias to itself"),
        pytest.param("? [x]\n: 1\n", "a key must be a name", id="list as key"),
        pytest.param("<<: 5\n", "'<<' takes a mapping", id="merge of a number"),
        pytest.param("a: b: c\n", "not valid YAML", id="syntax"),
        pytest.param("a: [1\nb: 2\n", "not valid YAML", id="open list"),
        pytest.param("a:\n\tb: 1\n", "indent with spaces", id="tab"),
        pytest.param("--- 1\n--- 2\n", "not valid YAML", id="two documents"),
        pytest.param("[" * 5000, "", id="too deep"),
        pytest.param(r'a: "\ud83d"', "half a unicode character", id="half a character"),
    ],
)
def test_faulty_writing_is_told_and_never_raised(text: str, words: str) -> None:
    faults = read(text).faults
    assert faults
    assert any(words in problem for _, problem, _ in faults)


def test_characters_that_json_writes_as_two_escapes_are_one() -> None:
    assert read_document(json.dumps({"😀": "a😀"}).encode(), {}).data == {"😀": "a😀"}


def test_syntax_fault_has_its_line() -> None:
    document = read("a: 1\nb: 2\nc: d: e\n")
    assert document.data is None
    assert document.faults[0][2] == 3


def test_bytes_that_are_no_text_are_a_fault() -> None:
    document = read_document(b"a: \xff\xfe\x00\n", {})
    assert "not readable as text" in document.faults[0][1]


def test_nested_aliases_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NODES", 1000)
    text = "a0: &a0 [1, 2]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    document = read(text)
    assert document.data is None
    assert "more than 1000 parts" in document.faults[0][1]


def test_plain_reference_is_read_as_yaml_and_quoted_one_stays_text() -> None:
    document = read('a: ${N}\nb: "${N}"\nc: x${N}\nd: ${M:-true}\ne: ${Z:-}\n', N="42")
    assert document.data == {"a": 42, "b": "42", "c": "x42", "d": True, "e": None}


def test_unset_variable_is_a_fault_with_its_line() -> None:
    document = read("a: 1\nb:\n  - x: ${NOT_THERE}\n")
    assert document.faults == [
        (("b", 0, "x"), "environment variable NOT_THERE is not set; set it, or give a default: ${NOT_THERE:-...}", 3)
    ]


def test_keys_hold_no_references() -> None:
    assert read("${A}: 1\n", A="x").data == {"${A}": 1}


@pytest.mark.parametrize("template", ["got 'hunter2-secret'", "got hunter2-sec…", "hunter2-secret and hunter2-secret"])
def test_values_of_variables_are_hidden_in_messages_even_when_cut(template: str) -> None:
    document = read("db: {password: '${PW}'}\n", PW="hunter2-secret")
    for loc in ((), ("db",), ("db", "password"), ("db", "password", "inner")):
        hidden = document.hide_values(loc, template)
        assert "hunter2" not in hidden
        assert "${PW}" in hidden
    assert document.hide_values(("other",), template) == template


def test_short_values_are_left_in_messages() -> None:
    assert read("a: ${N}\n", N="7").hide_values(("a",), "expected 17, got 7") == "expected 17, got 7"


def test_braces_without_quotes_in_flow_style_say_to_quote_the_text() -> None:
    ((_, problem, line),) = read("a: 1\nsource: {type: files, path: in/{dataset}.csv}\n").faults
    assert problem.endswith("inside {...} and [...] a text with braces needs quotes")
    assert line == 2


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 4998, "0o" + "7" * 4998])
def test_number_that_is_too_long_says_so_and_how_to_mean_a_text(number: str) -> None:
    document = read(f"a: 1\nb: {number}\n")
    ((place, problem, line),) = document.faults
    assert (place, line) == (("b",), 2)
    assert problem == "a number of 5,000 digits is too long; write it in quotes if a text is meant"


@pytest.mark.parametrize(
    "text", ["output: {path: ${LAKE}}", "a: 1\nlist: [x, ${LAKE}]", "output: {path: ${LAKE}, x: 1}"]
)
def test_reference_without_quotes_in_flow_style_says_to_quote_it(text: str) -> None:
    ((_, problem, line),) = read(text, LAKE="/lake").faults
    assert problem.endswith('inside {...} and [...] a reference needs quotes: "${LAKE}"')
    assert line == text.count("\n") + 1
    assert read(text.replace("${LAKE}", '"${LAKE}"'), LAKE="/lake").faults == []


@pytest.mark.parametrize(
    "text",
    [
        "a: [1, 2.5, 0x10, ~, true, 'x', \"y\"]\nb: &b {c: 1}\nd:\n  <<: *b\n  c: ${FIVE}\n",
        "text: >-\n  one\n  two\nkeep: |+\n  three\n\n",
        "a: 1\na: 2\n",
        "port: ${FIVE}\nname: '${FIVE}'\n",
        "day: 2013-01-01\nzip: 007\n",
        "key: d? elta\nother: {a? b: 1}\n",
        "---",
        "---\na: 1\n--- \nb: 2\n",
        "a: |#x\n  text\n",
        "a: >2#x\n  text\n",
        'smile: "\\ud83d\\ude00"\n',
        "tab:\t1\n",
        "name: Größe\n",
        "a: b: c\n",
        "- " * 900 + "x",
        "",
    ],
)
def test_libyaml_is_used_only_where_both_parsers_read_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = [read_document(text.encode(), {"FIVE": "5"})]
    monkeypatch.setattr(module, "_FastLoader", module._Loader)
    read.append(read_document(text.encode(), {"FIVE": "5"}))
    assert read[0] == read[1]


def test_links_to_nothing_are_meant_as_files_unless_an_editor_made_them(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "folder").mkdir()
    for name, target in {"b": "a", "gone": "nowhere", "itself": "itself", ".#a": "me@here", "to": "folder"}.items():
        (tmp_path / name).symlink_to(target)
    assert sorted(path.name for path in tmp_path.iterdir() if is_meant_as_file(path)) == ["a", "b", "gone", "itself"]
