"""`gobblin worker`: a process that keeps Spark between jobs, for `gobblin run` (a socket) or the service (a pipe)."""

from __future__ import annotations

import os
import resource
import socket
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from gobblin_dagster.cli.context import Output, OutputOption, importable, project_root
from gobblin_dagster.cli.lazy import WholeHelpGroup
from gobblin_dagster.cli.render.console import console, print_facts
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.cli.spark import Kept, lazy_spark
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.import_target import find_modules_in
from gobblin_dagster.core.utils.text import visible
from gobblin_dagster.engine.layout import SPARK_LOG
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.spark.lazy import KeptSparkRunner
from gobblin_dagster.service.executors.messages import JobNews, to_line
from gobblin_dagster.service.known_jobs import with_flows
from gobblin_dagster.service.logs import LogForm, start_logs
from gobblin_dagster.service.worker import Worker
from gobblin_dagster.service.worker_node import WorkerNode
from gobblin_dagster.spec.job import ConstructSpec
from gobblin_dagster.spec.load import load_project
from gobblin_dagster.spec.project import WorkerSpec
from gobblin_dagster.warm.address import DAGSTER, WarmAddress
from gobblin_dagster.warm.client import DAGSTER_LOG, WORKER_LOG, ask_at
from gobblin_dagster.warm.log import start_log
from gobblin_dagster.warm.server import WarmServer
from gobblin_dagster.warm.watch import Watch, surroundings

app = typer.Typer(
    cls=WholeHelpGroup,
    rich_markup_mode=None,
    add_completion=False,
    invoke_without_command=True,
    help="See and end the worker that keeps Spark warm for `gobblin run`.",
)
DagsterOption = Annotated[
    bool, typer.Option("--dagster", help="The worker of Dagster's runs, which `GobblinWarmRunLauncher` starts.")
]


@app.callback()
def worker(
    ctx: typer.Context,
    pipe: Annotated[bool, typer.Option("--pipe", help="Take the orders of `gobblin serve`.", hidden=True)] = False,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Jobs at once.", hidden=True)] = None,
    executor: Annotated[
        str | None,
        typer.Option("--executor", metavar="NAME", help="Run the jobs of this executor of the service's topology."),
    ] = None,
    listen_on: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="With --executor: take orders over HTTPS on this address; certificates are those of `worker.inlet`.",
        ),
    ] = None,
    log_form: Annotated[LogForm, typer.Option("--logs", help="Form of log lines.")] = LogForm.TEXT,
    supervised: Annotated[
        bool, typer.Option("--supervised", help="End when standard input ends: its owner was killed.", hidden=True)
    ] = False,
) -> None:
    """Run jobs of a service, or see and end the worker that keeps Spark warm for `gobblin run`.

    With `--executor NAME`, take the jobs that a service orders from this executor, until Ctrl-C or SIGTERM: running
    jobs end their work units and commit what is whole, the rest is left to other workers. Jobs may use what `allow` in
    the `gobblin.yaml` of this project names, whatever the service asks for.

    With `--listen HOST:PORT`, the service calls this address over HTTPS and both show certificates: `worker: {inlet:
    {type: rest, certificate: ..., key: ..., ca: ...}}` in `gobblin.yaml` names them, and the address in it, if there is
    one, counts no more.

    With `spark: {keep_warm: 15m}` in `gobblin.yaml`, `gobblin run` starts a worker, and runs in it.
    """
    if pipe:
        serve_pipe(project_root(ctx), log_form, jobs)
    elif executor is not None:
        serve_executor(importable(project_root(ctx)), executor, log_form, listen_on, is_supervised=supervised)
    elif listen_on is not None:
        raise UsageError(
            problem="`--listen` is for the worker of an executor.",
            hint=f"Name the executor: `gobblin worker --executor NAME --listen {listen_on}`.",
        )
    elif ctx.invoked_subcommand is None:
        raise UsageError(
            problem="A worker is started by `gobblin serve`, by `gobblin run` with `spark: {keep_warm: 15m}`, or with "
            "`--executor NAME` for a service.",
            hint="`gobblin worker status` shows it; `gobblin worker --help` lists the commands.",
        )


@app.command()
def status(ctx: typer.Context, dagster: DagsterOption = False, output: OutputOption = Output.TEXT) -> None:
    """Show the worker of this project."""
    root = project_root(ctx)
    found = ask_at(_address(root, dagster), "status")
    facts = {name: value for name, value in (found or {}).items() if name not in ("kind", "protocol")}
    is_expected = found is not None or dagster or load_project(root).spark.keep_warm
    if output is Output.JSON:
        print_json(exit_code=0, worker=facts or None)
    elif found is None:
        note = "" if is_expected else ": `spark.keep_warm` is not set in gobblin.yaml"
        console(sys.stdout).print(f"No worker runs{note}.")
    else:
        print_facts(console(sys.stdout), {name.replace("_", " "): _shown(value) for name, value in facts.items()})


@app.command()
def stop(
    ctx: typer.Context,
    now: Annotated[
        bool, typer.Option("--now", help="Kill it, instead of letting running work units of a command end.")
    ] = False,
    dagster: DagsterOption = False,
) -> None:
    """End the worker of this project; the next run starts another."""
    found = ask_at(_address(project_root(ctx), dagster), "stop", at_once=now)
    console(sys.stdout).print("No worker runs." if found is None else f"Worker {found['pid']} ends.")


@app.command()
def logs(
    ctx: typer.Context,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of newest lines.")] = 50,
    dagster: DagsterOption = False,
) -> None:
    """Print what the worker wrote into its log."""
    path = project_root(ctx) / (DAGSTER_LOG if dagster else WORKER_LOG)
    if not path.exists():
        raise UsageError(problem=f"There is no {path}.", hint="No worker was started in this project.")
    newest = path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    typer.echo(visible("\n".join(newest)))


@app.command(hidden=True)
def listen(ctx: typer.Context, number: Annotated[int, typer.Option("--socket", help="Listening socket.")]) -> None:
    """Serve the clients of a socket that `gobblin run` made."""
    from gobblin_dagster.cli.main import run_here  # noqa: PLC0415 - it imports the commands, this one too

    root = project_root(ctx)
    start_log()
    os.set_inheritable(number, False)
    spec = load_project(root)
    watch = Watch(root, surroundings())
    runner = Kept.runner = KeptSparkRunner(spec.spark, root / SPARK_LOG)
    server = WarmServer(
        WarmAddress.of(root),
        socket.socket(fileno=number),
        run_here,
        watch,
        runner.unfit,
        spec.spark.keep_warm_s,
        lambda: {"spark": runner.is_started, "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024},
    )
    server.serve()
    runner.end()


def serve_executor(
    root: Path, executor: str, log_form: LogForm, listen_on: str | None = None, *, is_supervised: bool = False
) -> None:
    """Take jobs of an executor until a signal comes.

    Args:
        root: the worker's project.
        executor: its name.
        log_form: form of log lines.
        listen_on: `HOST:PORT` on which orders are taken; None: as `worker.inlet` says.
        is_supervised: whether the worker ends at once when its standard input does: who started it was killed, and the
            next one starts others. The child that runs its jobs ends with it in the same way.
    """
    if is_supervised:
        threading.Thread(target=_end_with_owner, name="owner", daemon=True).start()
    spec = load_project(root)
    if is_supervised:
        # The service writes its orders into its own database, wherever workers of this project that people start look.
        spec = spec.model_copy(update={"worker": WorkerSpec(jobs_at_once=spec.worker.jobs_at_once)})
    if listen_on is not None:
        spec = spec.model_copy(update={"worker": listening(spec.worker, listen_on)})
    at_once = str(spec.worker.jobs_at_once)
    start_logs(as_json=log_form is LogForm.JSON, node=f"worker-{socket.gethostname()}-{os.getpid()}")
    command = [sys.executable, "-m", "gobblin_dagster", "-C", str(root), "worker", "--pipe", "--jobs", at_once]
    node = WorkerNode(executor, root, spec, [*command, "--logs", log_form])
    raise typer.Exit(
        node.run(lambda: typer.echo(f"Worker {node.name} takes jobs of {executor} from {node.inlet} (Ctrl-C ends it)."))
    )


def listening(worker: WorkerSpec, address: str) -> WorkerSpec:
    """Return a worker's settings with another address on which it takes orders.

    Args:
        worker: the settings in `gobblin.yaml`; its inlet has the certificates.
        address: `HOST:PORT`; an IPv6 address stands in brackets.

    Raises:
        UsageError: the text is no such address, or the settings name another inlet than `rest`.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or (":" in host and not host.startswith("[")):
        raise UsageError(
            problem=f"`--listen {address}` is no address.",
            hint="Write HOST:PORT, such as 0.0.0.0:8443 or [::1]:8443; port 0 takes any that is free.",
        )
    if worker.inlet.type != "rest":
        raise UsageError(
            problem=f"`--listen` takes orders over HTTPS, and `worker.inlet` in gobblin.yaml is {worker.inlet.type!r}.",
            hint="Set `worker: {inlet: {type: rest, certificate: ..., key: ..., ca: ...}}`, or leave `--listen` out.",
        )
    options = worker.inlet.options | {"host": host.strip("[]"), "port": int(port)}
    return worker.model_copy(update={"inlet": ConstructSpec(type="rest", **options)})


def _address(root: Path, dagster: bool) -> WarmAddress:
    return WarmAddress.of(root, DAGSTER if dagster else "")


def _end_with_owner() -> None:
    # Not by `sys.stdin`: Python could not end while a thread reads from it.
    while os.read(0, 1024):
        pass
    os._exit(1)


def serve_pipe(root: Path, log_form: LogForm, jobs_at_once: int | None = None) -> None:
    """Run the jobs that the service hands over, several at a time, on one Spark.

    When the input ends without an order to end, the service was killed: the worker ends at once, and the next start of
    the service takes its jobs up again.
    """
    find_modules_in(root)
    # What anything prints must not stand between the messages.
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def tell(news: JobNews) -> None:
        with lock:
            messages.write(to_line(news))
            messages.flush()

    spec = load_project(root)
    start_logs(as_json=log_form is LogForm.JSON, node=f"worker-{os.getpid()}")
    project = with_flows(Project(root.resolve(), spec))
    runner = lazy_spark(project)
    worker = Worker(project, runner, tell, jobs_at_once or spec.service.jobs_at_once, runner.unfit)
    is_ordered = worker.serve(sys.stdin)
    if not is_ordered:
        os._exit(1)
    runner.close()


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "-" if value is None else str(value)
