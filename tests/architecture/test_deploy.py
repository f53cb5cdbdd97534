"""The files in `deploy` name commands, options, ports, variables and files that there are; nothing is started."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import make_url
from typer.testing import CliRunner

from gobblin_dagster.cli.main import app
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.compiler.multi_hop import MultiHopCompiler
from gobblin_dagster.service.compiler.routed_flow import DESTINATIONS, SOURCE
from gobblin_dagster.service.executors.job_body import read_job_body
from gobblin_dagster.service.model import FlowConfig, FlowId
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.topology.files import read_topology
from gobblin_dagster.service.topology.model import KafkaTopics
from gobblin_dagster.service.worker_node import WorkerNode
from gobblin_dagster.spec.load import load_project
from gobblin_dagster.spec.project import ProjectSpec

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
IMAGE = "gobblin-dagster"
TOPICS = re.compile(r"for topic in ([\w -]+);")
_VARIABLE = re.compile(r"\$\{(\w+)\}")

Programs = list[tuple[list[str], Mapping[str, str]]]
"""Arguments of `gobblin`, and the variables that it has."""


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


def manifests() -> Iterator[dict[str, Any]]:
    for name in yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"]:
        yield from yaml.safe_load_all((DEPLOY / name).read_text())


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield containers, each with its pod."""
    for manifest in manifests():
        pod = manifest.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", ()):
            yield container, pod


def programs() -> dict[str, Programs]:
    """Return what is started of ours, by where it stands."""
    ours = [one for one in compose()["services"].values() if one["image"] == IMAGE]
    pods = [one for one, _ in containers() if one["image"] == IMAGE]
    found = {
        "compose": [(one["command"], one["environment"]) for one in ours],
        "kubernetes": [(one["args"], {env["name"]: str(env.get("value", "")) for env in one["env"]}) for one in pods],
    }
    assert {name: len(started) for name, started in found.items()} == {"compose": 4, "kubernetes": 2}
    return found


def project(name: str, monkeypatch: pytest.MonkeyPatch) -> ProjectSpec:
    monkeypatch.setenv("POSTGRES_PASSWORD", "secret")
    return load_project(DEPLOY / name)


def is_known(arguments: list[str]) -> bool:
    """Tell whether `gobblin` has the command and the options; with `--help` it parses them, and runs nothing."""
    return CliRunner().invoke(app, [*arguments, "--help"]).exit_code == 0


def test_commands_and_options_are_there() -> None:
    for started in programs().values():
        for arguments, _ in started:
            assert is_known(list(arguments)), arguments
    told = re.findall(r"gobblin (flow .*)$", (DEPLOY / "README.md").read_text(), re.MULTILINE)
    assert told
    for line in told:
        assert is_known(shlex.split(line)), line
    assert not is_known(["worker", "--executors", "west"])
    assert not is_known(["work"])


@pytest.mark.parametrize("where", ["compose", "kubernetes"])
def test_variables_that_projects_and_topology_name_are_set(where: str) -> None:
    topology = (DEPLOY / "service" / "topology" / "shop.yaml").read_text()
    for arguments, variables in programs()[where]:
        folder = "service" if arguments[0] == "serve" else "worker"
        named = set(_VARIABLE.findall((DEPLOY / folder / "gobblin.yaml").read_text()))
        if folder == "worker":
            named |= set(re.findall(r"url_env: (\w+)", topology))
        assert named
        assert named <= set(variables), arguments


def test_projects_and_topology_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    service, worker = project("service", monkeypatch), project("worker", monkeypatch)
    found = read_topology(
        DEPLOY / "service" / service.service.topology, TemplateCatalog(DEPLOY / "service" / "templates")
    )
    assert found.faults == ()
    [(name, executor)] = [(name, one) for name, one in found.graph.executors.items() if one.kafka is not None]
    assert KafkaTopics.model_validate(worker.worker.inlet.options) == executor.kafka
    assert executor.kafka is not None
    topics = f"{executor.kafka.orders} {executor.kafka.reports}"
    for text in (DEPLOY / "compose.yaml", DEPLOY / "kubernetes" / "servers.yaml"):
        assert TOPICS.findall(text.read_text()) == [topics]
    for started in programs().values():
        assert {tuple(one[0])[:3] for one in started} == {("serve",), ("worker", "--executor", name)}
    made = set(re.findall(r"CREATE DATABASE (\w+)", (DEPLOY / "databases.sql").read_text()))
    urls = [service.state, service.service.store, worker.state, worker.worker.store]
    urls += [
        one["environment"].get("SHOP_DATABASE", "") for one in compose()["services"].values() if one["image"] == IMAGE
    ]
    assert {make_url(url.replace("${POSTGRES_PASSWORD}", "x")).database for url in urls if url} == made


def mounted(where: str, name: str, folder: Path) -> Path:
    """Return a project folder with the files that a container of `service` or `worker` has in `/project`."""
    if where == "compose":
        one = compose()[f"x-{name}"]
        pairs = [volume.split(":")[:2] for volume in one["volumes"] if volume.startswith("./")]
        files = {target: DEPLOY / source for source, target in pairs}
    else:
        maps = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["configMapGenerator"]
        keys = {(one["name"], Path(file).name): DEPLOY / file for one in maps for file in one["files"]}
        [container] = [one for one, _ in containers() if one["name"] == name]
        mounts = [mount for mount in container["volumeMounts"] if "subPath" in mount]
        files = {mount["mountPath"]: keys[name, mount["subPath"]] for mount in mounts}
    for target, file in files.items():
        there = folder / target.removeprefix("/project/")
        there.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if file.is_dir() else shutil.copy)(file, there)
    return folder


@pytest.mark.parametrize("where", ["compose", "kubernetes"])
def test_programs_start_with_what_is_mounted_and_run_the_flow_that_the_readme_posts(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers are not asked: both wait for their databases."""
    monkeypatch.setenv("POSTGRES_PASSWORD", "secret")
    monkeypatch.setenv("SHOP_DATABASE", "postgresql://gobblin:secret@postgres/shop")
    roots = {name: mounted(where, name, tmp_path / name) for name in ("service", "worker")}
    service, worker = (load_project(root) for root in roots.values())
    node = WorkerNode("west", roots["worker"], worker, ["false"])
    core = CoreServices(roots["service"], service.service, ["false"], service.allow.lists, state=service.state)
    readme = (DEPLOY / "README.md").read_text()
    [(flow, source, destination)] = re.findall(r"gobblin flow create (\S+) --from (\S+) --to (\S+)", readme)
    ends = {SOURCE: source, DESTINATIONS: destination}
    templates = TemplateCatalog(roots["service"] / service.service.templates)
    graph = read_topology(roots["service"] / service.service.topology, templates).graph
    dag = MultiHopCompiler(templates, lambda: graph, service.allow.lists).compile(
        FlowConfig(FlowId(*flow.split("/")), "", ends)
    )
    assert [job.executor for job in dag.jobs] == ["embedded", "west"]
    for job in dag.jobs:
        own = worker if job.executor == "west" else service
        assert read_job_body(job.name, job.body, Path("/project"), own).source.type == "files"
    assert node.inlet.endswith("/west_orders")
    assert core.store.url.endswith("/service")
    for one in (node.store, core.store):
        one.close()


def test_probes_ask_what_the_service_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    port = project("service", monkeypatch).service.port
    texts = [str(one.get("healthcheck")) for one in compose()["services"].values()]
    texts += [str(one.get(probe)) for one, _ in containers() for probe in ("livenessProbe", "readinessProbe")]
    asked = {found for text in texts for found in re.findall(r"http://127\.0\.0\.1:(\d+)(/[\w/]+)", text)}
    assert asked == {(str(port), "/health/live"), (str(port), "/health/ready")}
    answers = (ROOT / "gobblin_dagster" / "service" / "api" / "app.py").read_text()
    assert all(f'"{path}"' in answers for _, path in asked)


def test_files_that_are_mounted_are_there() -> None:
    document = compose()
    for one in document["services"].values():
        for volume in one.get("volumes", ()):
            source, target = volume.split(":")[:2]
            assert source in document["volumes"] or (DEPLOY / source).exists(), volume
            assert target.startswith("/")
    assert (DEPLOY / document["x-image"]["build"]["context"] / document["x-image"]["build"]["dockerfile"]).exists()
    maps = {
        one["name"]: {Path(file).name for file in one["files"]}
        for one in yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["configMapGenerator"]
    }
    files = [
        file
        for one in yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["configMapGenerator"]
        for file in one["files"]
    ]
    assert [file for file in files if not (DEPLOY / file).exists()] == []
    claims = {one["metadata"]["name"] for one in manifests() if one["kind"] == "PersistentVolumeClaim"}
    for container, pod in containers():
        volumes = {one["name"]: one for one in pod.get("volumes", ())}
        for mount in container.get("volumeMounts", ()):
            volume = volumes.get(mount["name"], {})
            if "configMap" in volume and "subPath" in mount:
                assert mount["subPath"] in maps[volume["configMap"]["name"]]
                assert Path(mount["mountPath"]).name == mount["subPath"]
            elif "configMap" in volume:
                assert volume["configMap"]["name"] in maps
            elif "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims


def test_labels_select_their_pods() -> None:
    for one in manifests():
        if one["kind"] in ("Deployment", "StatefulSet"):
            assert one["spec"]["selector"]["matchLabels"] == one["spec"]["template"]["metadata"]["labels"]
    pods = [one["spec"]["template"]["metadata"]["labels"] for one in manifests() if "replicas" in one.get("spec", {})]
    assert all(one["spec"]["selector"] in pods for one in manifests() if one["kind"] == "Service")
