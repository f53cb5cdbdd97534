from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Cli, write_job


def test_report_is_one_page_with_datasets_plots_lag_and_rejected_rows(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    few = [{"name": "few", "type": "sql", "rule": "id < 20"}]
    write_job(project, {"a": {"rows": 25}, "b/<c>": {"rows": 3}}, row_policies=few)
    cli("run")
    write_job(project, {"a": {"rows": 30}, "b/<c>": {"rows": 3}}, row_policies=few)
    cli("run")
    called = cli("report", "numbers", "--file", "page.html")
    assert called.code == 0
    page = (project / "page.html").read_text()
    body = ET.fromstring(page.partition("</head>")[2].removesuffix("</html>\n"))
    text = " ".join(body.itertext())
    assert "Job numbers: succeeded" in " ".join(text.split())
    assert "b/<c>" in text
    plots = body.findall("svg")
    assert [len(plot.findall("rect")) for plot in plots] == [2, 2]
    assert "succeeded: 5 rows" in text
    rejected = [[cell.text for cell in row] for row in body.findall("div/table")[-1].iter("tr")]
    assert rejected[1] == ["a", "few", "10"]
    assert "http" not in page
    assert "<script" not in page


def test_errors_have_room_of_their_own_on_a_page_that_any_screen_shows(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    write_job(project, {"a": {"rows": 25}, "b": {"rows": 3, "fail_at": 1}})
    cli("run")
    cli("report", "-f", "page.html")
    page = (project / "page.html").read_text()
    body = ET.fromstring(page.partition("</head>")[2].removesuffix("</html>\n"))
    tables = [[[cell.text for cell in row] for row in table.iter("tr")] for table in body.findall("div/table")]
    errors = next(rows for rows in tables if rows[0] == ["dataset", "error"])
    assert [row[0] for row in errors[1:]] == ["b"]
    assert errors[1][1]
    assert 'name="viewport"' in page
    assert "#" not in "".join(ET.tostring(plot, "unicode") for plot in body.findall("svg")), "colours are the style's"


def test_last_run_is_reported_into_a_file_with_its_id(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    cli("run")
    assert cli("report").code == 0
    (page,) = project.glob("report-*.html")
    run_id = page.stem.removeprefix("report-")
    assert cli("report", run_id[:12], "-f", "again.html").out.startswith(f"Wrote again.html: run {run_id}")


def test_unknown_run_and_file_that_cannot_be_written(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    assert "No run is remembered" in cli("report").err
    cli("run")
    assert "No run or job 'x' is remembered" in cli("report", "x").err
    assert "cannot be written" in cli("report", "-f", "none/page.html").err
