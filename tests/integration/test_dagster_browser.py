"""Dagster's pages in a real Chromium, from a fresh project on: what a person clicks, and what then stands there.

One server, one browser and one project serve all tests. `GOBBLIN_PICTURES=FOLDER` keeps the pictures of the docs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, ViewportSize, expect, sync_playwright

from tests.integration.dagster_server import Webserver, wait_for
from tests.services.missing import missing
from tests.services.ports import free_port

pytestmark = pytest.mark.slow

SALES = ("shop", "sales", "main")
STOCK = ("shop", "stock", "main")
BAD = "day,amount\n2024-01-01,1\n2024-01-01,twelve\n"
JOB = """\
job: {job}
description: What each branch has by day
source:
  type: files
  path: "{job}/{{dataset}}/{{date:%Y-%m-%d}}.csv"
  format: {{type: csv, columns: {{day: date, amount: int64}}}}
extract: {{namespace: shop, table: {job}}}
row_policies: [{{name: sold_something, type: sql, rule: "amount > 0", on_violation: quarantine}}]
output: {{path: lake}}
schedule: {{cron: "0 6 * * *", time_zone: Europe/Berlin}}
"""
DEFINITIONS = """
from pathlib import Path
import dagster as dg
import pyarrow as pa
from gobblin_dagster.orchestration import build_definitions
from gobblin_dagster.testing.inline_runner import InlineRunner

@dg.asset(ins={"rows": dg.AssetIn(key=["shop", "sales", "main"])}, group_name="sales",
          partitions_def=dg.DynamicPartitionsDefinition(name="sales.dataset_urn"))
def totals(rows: pa.Table) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"rows": rows.num_rows})

defs = dg.Definitions.merge(build_definitions(Path(__file__).parent, runner=InlineRunner()), dg.Definitions([totals]))
"""

NO_GPU = ["--disable-gpu", "--disable-software-rasterizer"]
GO = "path => { history.pushState({}, '', path); dispatchEvent(new PopStateEvent('popstate', {state: {}})); }"
FAILED = "{ runsOrError(filter: {statuses: [FAILURE]}) { ... on Runs { results { runId } } } }"


@dataclass(frozen=True)
class Pages:
    """The browser's page, the server behind it, and the project."""

    page: Page
    server: Webserver
    root: Path

    def open(self, path: str) -> Page:
        """Open a page of Dagster by its path and query, as a link inside of the pages does: nothing is loaded again."""
        if self.page.url == "about:blank":
            self.page.goto(f"http://127.0.0.1:{self.server.port}{path}")
        else:
            self.page.evaluate(GO, path)
        return self.page

    def picture(self, name: str, height: int = 1000) -> None:
        """Keep a picture of the upper part of what is shown, if somebody wants it."""
        if folder := os.environ.get("GOBBLIN_PICTURES"):
            self.page.set_viewport_size(ViewportSize(width=1600, height=max(height, 1000)))
            self.page.wait_for_timeout(2000)
            self.page.screenshot(
                path=Path(folder) / f"{name}.png", clip={"x": 0, "y": 0, "width": 1600, "height": height}
            )
            self.page.set_viewport_size(ViewportSize(width=1600, height=1000))

    def counts(self, asset: tuple[str, ...]) -> tuple[int, int, int]:
        """Return the materialized, failed and all partitions of an asset."""
        return self.server.shown(asset).counts


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Open a fresh project: nothing has run, and `tokyo` of `sales` has a value that cannot be read."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        missing("no Chromium is installed here (looked for chromium, chromium-browser and google-chrome on PATH)")
    root = tmp_path_factory.mktemp("pages")
    (root / "gobblin.yaml").write_text("project: shop\n")
    (root / "definitions.py").write_text(DEFINITIONS)
    (root / "jobs").mkdir()
    for job, datasets in (("sales", ("berlin", "new york", "Zürich", "tokyo")), ("stock", ("a", "b", "c", "d"))):
        (root / "jobs" / f"{job}.yaml").write_text(JOB.format(job=job))
        for at, dataset in enumerate(datasets):
            rows = "".join(f"2024-01-01,{number}\n" for number in range(3 + at))
            write(root, job, dataset, BAD if dataset == "tokyo" else f"day,amount\n{rows}")
    server = Webserver(free_port())
    command = [sys.executable, "-m", "tests.services.dagster_browser_server", str(root), str(server.port)]
    with (root / "server.log").open("wb") as log, sync_playwright() as playwright:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=False, args=NO_GPU)
            page = browser.new_page(viewport=ViewportSize(width=1600, height=1000), device_scale_factor=0.9)
            page.set_default_timeout(60_000)
            expect.set_options(timeout=60_000)
            wait_for(lambda: server.ask("{ assetNodes { id } }")["assetNodes"] or process.poll() is not None, bool, 120)
            assert process.poll() is None, (root / "server.log").read_text()
            yield Pages(page, server, root)
            browser.close()
        finally:
            process.kill()  # it keeps nothing, and its threads would end one after the other
            process.wait(120)


def write(root: Path, job: str, dataset: str, text: str) -> None:
    file = root / job / dataset / "2024-01-01.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture(scope="module")
def first_run(pages: Pages) -> Pages:
    """Run a fresh project as a person does: "Materialize...", "All", "Launch"."""
    wait_for(lambda: pages.counts(SALES), lambda counts: counts == (0, 0, 4), 120)
    page = pages.open("/assets/shop/sales/main?view=partitions")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.get_by_text("4 partitions", exact=True)).to_be_visible()
    pages.picture("ui-first-run", height=700)
    page.get_by_role("button", name="Launch backfill").click()
    wait_for(lambda: pages.counts(SALES), lambda counts: counts == (3, 1, 4), 120)
    return pages


def test_first_click_of_a_fresh_project_shows_a_grid_with_green_and_red_partitions(first_run: Pages) -> None:
    page = first_run.open("/assets/shop/sales/main?view=partitions&partition=berlin")
    for text in ("Failed (1)", "Materialized (3)", "Materializing (0)", "Missing (0)"):
        expect(page.get_by_text(text)).to_be_visible()
    expect(page.get_by_text("gobblin/actual_high")).to_be_visible()
    expect(page.get_by_text("2024-01-02", exact=True).first).to_be_visible()
    page.get_by_text("gobblin/recent_runs").scroll_into_view_if_needed()
    expect(page.get_by_text("gobblin quarantine show berlin --job sales")).to_be_visible()


def test_red_partition_that_was_never_committed_tells_its_reason_in_its_events(first_run: Pages) -> None:
    page = first_run.open("/assets/shop/sales/main?view=partitions&partition=tokyo")
    expect(page.get_by_text("failed, and did not materialize this asset")).to_be_visible()
    page.get_by_role("button", name="View all historical events").click()
    page.get_by_role("dialog").get_by_text("tokyo").last.click()
    reason = page.get_by_role("dialog").get_by_text("gobblin/failures")
    expect(reason).to_be_visible()
    expect(
        page.get_by_role("dialog").get_by_text(re.compile("sales/tokyo/2024-01-01.csv.*twelve")).first
    ).to_be_visible()
    first_run.picture("ui-failed-partition")
    page.get_by_role("button", name="OK").click()
    page.get_by_role("button", name="View logs").click()
    expect(page.get_by_text("Run partial. Datasets: 3 committed, 1 failed.").first).to_be_visible()


def test_overview_shows_columns_source_line_and_plots_of_numbers(first_run: Pages) -> None:
    page = first_run.open("/assets/shop/sales/main?view=overview")
    expect(page.get_by_text("date32[day]")).to_be_visible()
    expect(page.get_by_role("link", name="Open sales.yaml:1")).to_be_visible()
    page.get_by_role("button", name="Plots").click()
    for number in ("dagster/partition_row_count", "gobblin/lag_s"):
        expect(page.get_by_text(number)).to_be_visible()
    expect(page.locator("canvas").first).to_be_visible()
    first_run.picture("ui-plots", height=1450)


def test_checks_show_what_a_policy_found_in_each_partition(first_run: Pages) -> None:
    page = first_run.open("/assets/shop/sales/main?view=checks")
    expect(page.get_by_text("rule: amount > 0")).to_be_visible()
    page.get_by_role("tab", name="Partitions").last.click()
    expect(page.get_by_text("Execution Failed (1)")).to_be_visible()
    page.get_by_title("berlin").last.click()
    expect(page.get_by_text("berlin: 1 rows broke sold_something")).to_be_visible()


def test_scattered_partitions_are_launched_as_a_backfill_that_completes(first_run: Pages) -> None:
    page = first_run.open("/assets/shop/stock/main?view=partitions")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_text("Select a partition or create one").click()
    for dataset, chosen in (("a", "1 partition"), ("c", "2 partitions")):
        page.get_by_role("menuitem").get_by_title(dataset, exact=True).click()
        # A click that comes before the page has taken in the one before replaces it.
        expect(page.get_by_text(chosen, exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    first_run.picture("ui-backfill", height=700)
    page.get_by_role("button", name="Launch backfill").click()
    wait_for(lambda: first_run.counts(STOCK), lambda counts: counts == (2, 0, 4), 120)
    page = first_run.open("/assets/shop/stock/main?view=partitions&partition=a")
    expect(page.get_by_text("Materialized (2)")).to_be_visible()
    expect(page.get_by_text("Missing (2)")).to_be_visible()
    page = first_run.open("/runs")
    expect(page.get_by_text("Backfill").first).to_be_visible()
    first_run.picture("ui-runs", height=320)


def test_failed_run_is_repeated_from_its_page(first_run: Pages) -> None:
    run_id = first_run.server.ask(FAILED)["runsOrError"]["results"][0]["runId"]
    page = first_run.open(f"/runs/{run_id}")
    page.get_by_role("button", name="Re-execute all").click()
    page.get_by_role("button", name="Confirm").click()
    wait_for(lambda: len(first_run.server.ask(FAILED)["runsOrError"]["results"]), lambda runs: runs == 2, 60)
    assert first_run.counts(SALES) == (3, 1, 4)
    first_run.picture("ui-re-execution", height=365)


def test_sensors_and_the_schedule_stand_on_one_page(first_run: Pages) -> None:
    page = first_run.open("/automation")
    for name in ("sales_schedule", "stock_schedule", "shop_new_data", "shop_sweep"):
        expect(page.get_by_text(name)).to_be_visible()
    first_run.picture("ui-automation", height=430)
    page = first_run.open("/locations/gobblin/sensors/shop_sweep")
    expect(page.get_by_text("(8 partitions created)")).to_be_visible()


def test_lineage_leads_from_the_source_to_the_asset_below(first_run: Pages) -> None:
    page = first_run.open("/assets/shop/sales/main?view=lineage")
    for name in ("sales", "main", "totals"):
        expect(page.get_by_text(name, exact=True).last).to_be_visible()


def test_catalog_search_finds_assets_by_name(first_run: Pages) -> None:
    page = first_run.open("/assets")
    page.get_by_role("button", name="Search").first.click()
    page.keyboard.type("totals")
    expect(page.get_by_text("totals").first).to_be_visible()
    first_run.picture("ui-search", height=480)
