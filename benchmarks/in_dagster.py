"""What Dagster costs on top of a load, for us and for dagster-dlt, measured the same way.

    python benchmarks/in_dagster.py [--datasets 200] [--jobs 200] [--rounds 3] [--dlt PYTHON]

`--dlt` names a Python in which dagster-dlt and dlt are installed with `[filesystem,parquet]`. Each side loads the same
CSV files, first by its own command, then as a run of Dagster (`dagster job execute`, SQLite, one process); and each
side's definitions are loaded, for as many jobs (of us) or sources (of dlt) as `--jobs` says, and a run of each is begun
up to its first step. Shown are medians of CPU seconds of whole processes, with their start.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from statistics import median

from figures import Figure, save_figures
from many_datasets import HERE, JOB, Took, adopt_orphans, timed, write_files

OURS = """
from pathlib import Path
from gobblin_dagster.orchestration import build_definitions
defs = build_definitions(Path(__file__).parent, checks={checks})
"""
DLT = """
from pathlib import Path
import dagster as dg
import dlt
import pyarrow.csv as pacsv
from dagster_dlt import DagsterDltResource, dlt_assets

HERE = Path(__file__).parent

def rows(file):
    yield pacsv.read_csv(file)

def made(name, files):
    @dlt.source(name=name)
    def source():
        return [dlt.resource(rows(file), name=file.parent.name, write_disposition="append") for file in files]

    pipeline = dlt.pipeline(
        name, destination=dlt.destinations.filesystem(f"file://{{HERE}}/lake"), dataset_name="bench",
        pipelines_dir=str(HERE / "pipelines"),
    )

    @dlt_assets(dlt_source=source(), dlt_pipeline=pipeline, name=name)
    def assets(context: dg.AssetExecutionContext, dlt_resource: DagsterDltResource):
        yield from dlt_resource.run(context=context, loader_file_format="parquet")

    return assets

found = sorted(Path({files!r}).glob("*/*.csv"))
size = {size}
parts = [found[at : at + size] for at in range(0, len(found), size)]
defs = dg.Definitions(
    [made(f"part{{at}}", files) for at, files in enumerate(parts)],
    jobs=[dg.define_asset_job("many_job", selection="*", executor_def=dg.in_process_executor)],
    resources={{"dlt_resource": DagsterDltResource()}},
)
"""
LOAD = "import definitions; definitions.defs.get_repository_def()"
FIRST_STEP = """
import os
import dagster as dg

def many_job():
    import definitions
    return definitions.defs.resolve_job_def("many_job")

if __name__ == "__main__":
    import first_step

    with dg.DagsterInstance.get() as instance:
        store = instance.handle_new_event

        def store_until_first_step(event, **more):
            if event.dagster_event and event.dagster_event.event_type_value == "STEP_START":
                os._exit(0)
            store(event, **more)

        instance.handle_new_event = store_until_first_step
        dg.execute_job(dg.reconstructable(first_step.many_job), instance=instance)
"""
HOME = "telemetry: {enabled: false}\n"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=200, help="files that a run loads (default: 200)")
    parser.add_argument("--jobs", type=int, default=200, help="jobs whose definitions are loaded (default: 200)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side (default: 3)")
    parser.add_argument("--dlt", type=Path, help="a Python that has dagster-dlt")
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".work" / "bench", help="folder to work in")
    args = parser.parse_args()
    adopt_orphans()
    cache = args.cache.resolve()
    files, single = write_files(cache, args.datasets, 336), write_files(cache, args.jobs, 336)
    took: dict[tuple[str, int], list[Took]] = {}
    for _ in range(args.rounds):
        folder = fresh(cache)
        write_jobs(folder, single, args.jobs)
        (folder / "definitions.py").write_text(OURS.format(checks=True), encoding="utf-8")
        note(took, "ours, definitions", args.jobs, [sys.executable, "-c", LOAD], folder)
        for side, checks in (("ours, alone", None), ("ours, in Dagster", "True"), ("ours, failures", "'failures'")):
            folder = fresh(cache)
            (folder / "jobs" / "many.yaml").write_text(JOB.format(files=files) + POLICIES, encoding="utf-8")
            (folder / "definitions.py").write_text(OURS.format(checks=checks), encoding="utf-8")
            alone = [sys.executable, "-m", "gobblin_dagster", "run"]
            note(took, side, args.datasets, alone if checks is None else execute(sys.executable), folder)
        note(took, "ours, to first step", args.datasets, first_step(sys.executable, folder), folder)
        if args.dlt:
            folder = fresh(cache)
            text = DLT.format(files=str(single), size=1)
            (folder / "definitions.py").write_text(text, encoding="utf-8")
            note(took, "dlt, definitions", args.jobs, [str(args.dlt), "-c", LOAD], folder)
            folder = fresh(cache)
            note(
                took,
                "dlt, alone",
                args.datasets,
                [str(args.dlt), str(HERE / "many_datasets_dlt.py"), str(files)],
                folder,
            )
            folder = fresh(cache)
            (folder / "definitions.py").write_text(DLT.format(files=str(files), size=200), encoding="utf-8")
            note(took, "dlt, in Dagster", args.datasets, execute(str(args.dlt)), folder)
            note(took, "dlt, to first step", args.datasets, first_step(str(args.dlt), folder), folder)
    figures = [
        Figure(side, of, median(one.seconds for one in turns), median(one.cpu_s for one in turns))
        for (side, of), turns in took.items()
    ]
    for figure in figures:
        print(f"{figure.of:>7,} {figure.side:<20} {figure.value:8.2f} s, {figure.cpu_s:8.2f} CPU s")
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, medians of {args.rounds}.")
    save_figures("In Dagster, seconds by number of datasets or jobs", figures)


POLICIES = """
row_policies: [{name: known, type: sql, rule: "carrier is not null", on_violation: quarantine}]
task_policies: [{type: row_count}]
"""


def fresh(cache: Path) -> Path:
    """Return an empty project, with a home for Dagster."""
    folder = cache / "in-dagster"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "jobs").mkdir(parents=True)
    (folder / "home").mkdir()
    (folder / "home" / "dagster.yaml").write_text(HOME, encoding="utf-8")
    (folder / "gobblin.yaml").write_text("project: bench\n", encoding="utf-8")
    os.environ["DAGSTER_HOME"] = str(folder / "home")
    os.environ["PYTHONWARNINGS"] = "ignore"
    return folder


def write_jobs(folder: Path, files: Path, number: int) -> None:
    """Write so many jobs, each of all files."""
    for at in range(number):
        text = JOB.format(files=files).replace("job: many", f"job: many{at}").replace("table: many", f"table: many{at}")
        (folder / "jobs" / f"many{at}.yaml").write_text(text, encoding="utf-8")


def execute(python: str) -> list[str]:
    """Return the command that runs all of a definitions.py as one run of Dagster."""
    return [python, "-m", "dagster", "job", "execute", "-f", "definitions.py", "-j", "many_job"]


def first_step(python: str, folder: Path) -> list[str]:
    """Return the command of a run that ends where its first step would begin, in a process as Dagster's runs have."""
    (folder / "first_step.py").write_text(FIRST_STEP, encoding="utf-8")
    return [python, "first_step.py"]


def note(took: dict[tuple[str, int], list[Took]], side: str, of: int, command: list[str], folder: Path) -> None:
    """Run a command and keep what it took."""
    took.setdefault((side, of), []).append(timed(command, folder))


if __name__ == "__main__":
    main()
