"""Documents in step with the code: the map of originals, links between documents, the records of decisions."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.run_record import RunStatus

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
RECORDS = sorted((ROOT / "docs" / "adr").glob("*.md"))


def readable(document: Path) -> str:
    return str(document.relative_to(ROOT))


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS, ids=readable)
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        path, _, fragment = target.partition("#")
        file = (document.parent / path) if path else document
        if target.startswith(("https://", "http://")):
            continue
        if not file.exists():
            dead.append(target)
        elif fragment:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            if fragment not in map(anchor, headings):
                dead.append(target)
    assert dead == []


def test_list_after_a_paragraph_gets_an_empty_line_for_the_site_but_not_inside_code() -> None:
    prepare = runpy.run_path(str(ROOT / "scripts" / "docs_site.py"))["on_page_markdown"]
    text = "**Added**\n- one\n  two\n- three\n```yaml\nkey:\n- four\n```\n1. five"
    assert prepare(text) == "**Added**\n\n- one\n  two\n- three\n```yaml\nkey:\n- four\n```\n\n1. five"


def test_every_page_stands_in_the_navigation_of_the_site_and_is_listed_on_the_first_page() -> None:
    first = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = {(ROOT / "docs" / path).resolve() for path in re.findall(r"\]\(([^)#\s]+)", first)}
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name != "README.md"]
    assert [readable(page) for page in pages if page not in linked] == []
    named = re.findall(r" (docs/\S+)$", navigation, re.MULTILINE)
    in_navigation = {page for path in named for page in ROOT.glob(path)}
    assert [readable(page) for page in pages if page not in in_navigation] == []


def test_map_of_originals_is_in_step_with_docstrings() -> None:
    done = subprocess.run([sys.executable, "scripts/gobblin_map.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "write it again: python scripts/gobblin_map.py"


def test_options_are_in_step_with_the_models_and_each_says_what_it_is() -> None:
    done = subprocess.run([sys.executable, "scripts/options.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "write them anew: python scripts/options.py"
    text = (ROOT / "docs" / "reference" / "options.md").read_text(encoding="utf-8")
    assert re.findall(r"^.*\|  \|$", text, re.MULTILINE) == []


def test_every_row_of_the_map_is_shown_by_a_test() -> None:
    text = (ROOT / "docs" / "gobblin-map.md").read_text(encoding="utf-8")
    assert re.findall(r"^\|.*`([^`]+)` \|.*\| - \|$", text, re.MULTILINE) == []


@pytest.mark.parametrize("record", RECORDS, ids=readable)
def test_record_of_a_decision_has_its_four_parts(record: Path) -> None:
    headings = re.findall(r"^## (.+)$", record.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == ["Context", "Decision", "Consequences", "Rejected"]


def test_records_of_decisions_are_numbered_without_gaps() -> None:
    assert [int(record.name[:4]) for record in RECORDS] == list(range(1, len(RECORDS) + 1))


def test_glossary_is_sorted_and_names_each_word_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = [word.lower() for word in re.findall(r"^\*\*([^*]+)\*\*", text, re.MULTILINE)]
    assert words == sorted(set(words))


def test_documents_named_in_code_exist() -> None:
    code = [file.read_text(encoding="utf-8") for file in (ROOT / "gobblin_dagster").rglob("*.py")]
    named = {path for text in code for path in re.findall(r"\bdocs/[\w/.-]+\.md\b", text)}
    assert named
    assert sorted(path for path in named if not (ROOT / path).is_file()) == []


def test_page_of_exit_codes_lists_those_that_there_are() -> None:
    text = (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (.+) \|$", text, re.MULTILINE)
    assert rows == [(str(one.value), one.name.lower(), one.meaning) for one in ExitCode]


def test_page_of_failures_says_what_to_do_about_each_exit_code_of_a_run() -> None:
    text = (ROOT / "docs" / "operations" / "failures.md").read_text(encoding="utf-8")
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert codes == {one.value for one in ExitCode} - {ExitCode.CHANGES}


def test_each_end_of_a_run_has_its_exit_code_and_the_word_of_it() -> None:
    ends = {*RunStatus} - {RunStatus.RUNNING}
    assert {ExitCode.of_run(status).name.lower() for status in ends} == {status.value for status in ends}


def test_no_command_ends_with_a_number_of_its_own() -> None:
    code = {
        str(file.relative_to(ROOT)): file.read_text(encoding="utf-8")
        for file in (ROOT / "gobblin_dagster").rglob("*.py")
    }
    own = {
        name
        for name, text in code.items()
        if re.search(r"(typer\.Exit|sys\.exit)\(\d|^[A-Z]+ = 130$", text, re.MULTILINE)
    }
    assert own == set()
