"""Load `gobblin.yaml` and job files; report all faults of a file at once, each with its line.

The caller passes a function that checks the options of constructs (`registry.check`), so that this package need not
import `constructs`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pydantic import ValidationError

from gobblin_dagster.core.allow import EVERYTHING, AllowLists
from gobblin_dagster.core.errors import InvalidSpecError, SpecFault, UsageError
from gobblin_dagster.core.secrets import (
    give,
    hide_environment,
    hide_names,
    hide_variables,
    remember,
    remember_passwords,
)
from gobblin_dagster.core.utils.regular_file import read_regular
from gobblin_dagster.spec.document import Document, Loc, is_meant_as_file, read_document
from gobblin_dagster.spec.env import not_set
from gobblin_dagster.spec.explain import explain
from gobblin_dagster.spec.job import ConstructSpec, ConverterSpec, JobSpec, RowPolicySpec, SpecModel, TaskPolicySpec
from gobblin_dagster.spec.project import PROJECT_FILE, ProjectSpec
from gobblin_dagster.spec.secret_values import Variables
from gobblin_dagster.spec.secrets import (
    literal_secrets,
    named_variables,
    project_secrets,
    shown_urls,
    values_to_hide,
)
from gobblin_dagster.storage import storage_path

if TYPE_CHECKING:
    from gobblin_dagster.spec.gobblin.document import GobblinDocument

GOBBLIN_SUFFIXES = frozenset({".pull", ".job", ".conf"})
"""Suffixes of Gobblin's job files. A `.json` file is loaded only if it is named."""

ConstructCheck: TypeAlias = Callable[[Any, str, Mapping[str, Any]], list[tuple[tuple[str | int, ...], str]]]
"""Gets the kind (a text; `Any` also allows a StrEnum), type and options of a construct; returns (place inside the
construct, problem) for each fault."""

MAX_FAULTS = 100
"""The most faults of one file that are reported; a file of another kind may have a fault in each line."""

_Model = TypeVar("_Model", bound=SpecModel)

_SINGLE = {"source": "source", "writer": "writer", "publisher": "publisher"}
_LISTS = {"converters": "converter", "row_policies": "row_policy", "task_policies": "task_policy"}
_FIELDS = {
    "converter": set(ConverterSpec.model_fields),
    "row_policy": set(RowPolicySpec.model_fields),
    "task_policy": set(TaskPolicySpec.model_fields),
}
"""By kind of construct, the keys that are fields of its spec; all other keys are options."""


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """A job and its file."""

    spec: JobSpec
    path: Path
    warnings: tuple[SpecFault, ...] = ()
    """Keys of a Gobblin file that are ignored on purpose, with reasons."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Line of each branch in the file; of a branch that the file does not name, the line of what stands for it."""


@dataclass(frozen=True, slots=True)
class GobblinFiles:
    """Settings of a project that are needed to read Gobblin's job files."""

    root: Path
    """The jobs folder. Files with common keys (`*.properties`) are read from it down to the folder of the job file."""
    classes: Mapping[str, ConstructSpec] = field(default_factory=dict)
    """Declarations to use for classes of users, by class name (`classes` in gobblin.yaml)."""
    allow: AllowLists = EVERYTHING
    """What job files may use; here only environment variables, modules and the paths of further files."""
    base_dir: Path = field(default_factory=Path)
    """The project folder, from which relative `allow.paths` start."""

    def read(self, path: Path, environ: Mapping[str, str]) -> GobblinDocument:
        """Read one of Gobblin's job files; raises UsageError if there is no such file."""
        _read(path)
        from gobblin_dagster.spec.gobblin.document import read_gobblin  # noqa: PLC0415 - not needed for YAML jobs

        own = {name: spec.model_dump() for name, spec in self.classes.items()}
        return read_gobblin(path, self.root, own, environ, shown_path, partial(self.refused, path.parent))

    def refused(self, folder: Path, path: Path) -> str:
        """Return why a file must not be read for a job in a folder; an empty text if it may.

        Its keys may become data (`include=../.env`), and its text may stand in messages.
        """
        real = Path(os.path.realpath(path))  # `resolve` raises for links that lead to each other
        if any(real.is_relative_to(os.path.realpath(one)) for one in (self.root, folder)):
            return ""
        problem = self.allow.path_problem(str(real), os.path.realpath(self.base_dir))
        return problem and f"is outside of the jobs folder: {problem}"


def find_project(start: Path) -> Path:
    """Return the nearest folder with a `gobblin.yaml`, from `start` upwards.

    Raises:
        UsageError: there is no such folder, or it cannot be looked into.
    """
    try:
        here = start.resolve()
        str(here).encode()
        for folder in (here, *here.parents):
            if is_meant_as_file(folder / PROJECT_FILE):
                return folder
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        why = error.strerror if isinstance(error, OSError) else "its links lead to each other"
        raise UsageError(problem=f"The folder {str(start)[:200]!r} cannot be looked into: {why}.") from error
    except UnicodeEncodeError as error:
        raise UsageError(
            problem=f"The path of the folder {str(here)[-200:]!r} is no UTF-8: states could not name its files.",
            hint="Rename the folder, or one above it.",
        ) from error
    raise UsageError(
        problem=f"No {PROJECT_FILE} in {start} or a folder above it.",
        hint="Change into a project, name one with `gobblin -C FOLDER ...`, or make one with `gobblin init NAME`.",
    )


def load_project(root: Path, environ: Mapping[str, str] | None = None) -> ProjectSpec:
    """Load `gobblin.yaml` of a project folder. What it names in `secrets` is found by `core.secrets.variable` then.

    Args:
        root: the project folder.
        environ: environment variables for references; default: those of the process.

    Raises:
        InvalidSpecError: the file has faults; the error lists all of them.
        UsageError: there is no such file.
    """
    hide_environment()
    written: dict[Loc, str] = {}

    def read(path: Path, environ: Mapping[str, str]) -> Document:
        document = _read_yaml(path, environ)
        written.update(document.written)
        return document

    spec = _load(root / PROJECT_FILE, ProjectSpec, environ, lambda data: project_secrets(data, written), read)[0]
    give(spec.secrets, _variables(root, spec, environ))
    return spec


def load_job(
    path: Path,
    check: ConstructCheck | None = None,
    environ: Mapping[str, str] | None = None,
    gobblin: GobblinFiles | None = None,
) -> LoadedJob:
    """Load one job file: YAML, or Gobblin's `.pull`, `.job`, `.conf` or `.json`.

    Args:
        path: the file.
        check: checks the options of constructs; default: they are not checked.
        environ: environment variables for references; default: those of the process.
        gobblin: settings for Gobblin's job files; default: no settings, and the file's folder as jobs folder.

    Raises:
        InvalidSpecError: the file has faults; the error lists all of them, with those of constructs.
        UsageError: there is no such file.
    """
    return _load_job(path, check, environ, gobblin or GobblinFiles(path.parent))[0]


def load_job_text(
    content: bytes,
    name: str,
    check: ConstructCheck | None = None,
    environ: Mapping[str, str] | None = None,
    allow: AllowLists = EVERYTHING,
) -> JobSpec:
    """Load a job that comes from no file, such as one that a service made of a template.

    Args:
        content: YAML or JSON.
        name: names the job in errors.
        check: checks the options of constructs; default: they stay unchecked.
        environ: environment variables for references; default: those of the process.
        allow: what the job may touch.

    Raises:
        InvalidSpecError: the job has faults; all are listed.
    """
    gobblin = GobblinFiles(Path(), allow=allow)
    return _load_job(Path(name), check, environ, gobblin, lambda _, variables: read_document(content, variables))[
        0
    ].spec


def job_text_faults(content: bytes, check: ConstructCheck, allow: AllowLists = EVERYTHING) -> list[SpecFault]:
    """Return the faults of a job that can be found without its environment.

    Places that hold references to environment variables are not judged: their values are known where the job runs.
    """
    document = read_document(content, None)
    faults = [document.fault(*fault) for fault in document.faults]
    if faults or document.data is None:
        return faults
    unknown = {loc for loc, text in texts(document.data, ()) if "$" in text}
    written = {loc: text for loc, text in texts(document.data, ()) if loc in unknown}
    found = list(construct_faults(document.data, check, allow, written))
    try:
        JobSpec.model_validate(document.data)
    except ValidationError as error:
        found += explain(error, JobSpec, document.written.get)
    return [document.fault(loc, problem) for loc, problem in found if loc not in unknown]


def texts(data: Any, at: Loc) -> Iterator[tuple[Loc, str]]:
    """Yield (place, text) of each text at any depth."""
    if isinstance(data, str):
        yield at, data
    elif isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from texts(value, (*at, key))


def load_jobs(
    root: Path,
    project: ProjectSpec,
    check: ConstructCheck | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[list[LoadedJob], list[InvalidSpecError]]:
    """Load all job files of a project (see `job_files`); return the jobs, and the errors of the other files.

    If several files declare jobs with one name, each of these files gets a fault: the name is the key of the job's
    state.

    Raises:
        UsageError: there is no jobs folder, and no folder of templates either.
    """
    folder = root / project.jobs
    if not folder.exists() and (root / project.service.templates).is_dir():
        return [], []  # flows of the service make the jobs; git keeps no empty folder
    if not folder.is_dir():
        raise UsageError(
            problem=f"Project {project.project!r} has no jobs folder {shown_path(folder)}.",
            hint=f"Create it and put a job file into it, or set `jobs:` in {PROJECT_FILE}.",
        )
    loaded: dict[Path, tuple[LoadedJob, Document]] = {}
    errors: dict[Path, InvalidSpecError] = {}
    gobblin = GobblinFiles(folder, project.classes, project.allow.lists, root)
    variables = _variables(root, project, environ)
    for path in job_files(folder):
        try:
            loaded[path] = _load_job(path, check, variables, gobblin)
        except InvalidSpecError as error:
            errors[path] = error
        except UsageError as error:  # the file cannot be read; the others can
            fault = SpecFault("document", error.message())
            errors[path] = InvalidSpecError(file=shown_path(path), faults=(fault,))
    names: dict[str, list[Path]] = {}
    for path, (job, _) in loaded.items():
        names.setdefault(job.spec.job, []).append(path)
    for name, paths in names.items():
        for path in paths if len(paths) > 1 else ():
            others = ", ".join(shown_path(other) for other in paths if other != path)
            problem = f"the name {name!r} is taken by {others} too; it is the key of the job's state, choose another"
            fault = SpecFault("job", problem, loaded.pop(path)[1].line(("job",)))
            errors[path] = InvalidSpecError(file=shown_path(path), faults=(fault,))
    for path, problem in _shared_folders(loaded, root).items():
        fault = SpecFault("job", problem, loaded.pop(path)[1].line(("job",)))
        errors[path] = InvalidSpecError(file=shown_path(path), faults=(fault,))
    return [job for job, _ in loaded.values()], [errors[path] for path in sorted(errors)]


def _shared_folders(loaded: Mapping[Path, tuple[LoadedJob, Document]], root: Path) -> dict[Path, str]:
    """Return, by file, the problem of jobs of one output whose names differ in case only.

    Their manifests would share a folder, at least if the file system ignores case. Jobs with outputs of their own do
    not: a job that was renamed would read everything again.
    """
    owners: dict[tuple[str, str], list[Path]] = {}
    for path, (job, _) in loaded.items():
        owners.setdefault((job.spec.job.casefold(), output_root(root, job.spec.output.path)), []).append(path)
    return {
        path: f"the manifests of job {loaded[path][0].spec.job!r} would share a folder with those of "
        + ", ".join(f"{loaded[other][0].spec.job!r} in {shown_path(other)}" for other in paths if other != path)
        + ", at least if the file system ignores case; choose another name, or give each an output of its own"
        for paths in owners.values()
        if len(paths) > 1
        for path in paths
    }


def output_root(root: Path, path: str) -> str:
    """Return the absolute root of an output, given its path in a job file of the project in the folder `root`."""
    if path.startswith("file://"):
        return storage_path(path)
    return path.rstrip("/") if "://" in path else os.path.realpath(root / path)


def _variables(root: Path, project: ProjectSpec, environ: Mapping[str, str] | None) -> Variables:
    return Variables(os.environ if environ is None else environ, project.secrets, root)


def job_files(folder: Path) -> list[Path]:
    """Return the job files of a jobs folder, sorted by path.

    These are `*.yaml` and `*.yml` in the folder itself, and `*.pull`, `*.job` and `*.conf` in it and in folders below.
    The case of suffixes does not matter. What is no file counts too, such as a link to nothing, a pipe, or a folder of
    the first two kinds: it was meant as a job, and reading it says why not.
    """
    ours = [path for path in folder.iterdir() if path.suffix.lower() in {".yaml", ".yml"}]
    theirs = [path for path in folder.rglob("*") if path.suffix.lower() in GOBBLIN_SUFFIXES]
    return sorted(path for path in ours + theirs if is_meant_as_file(path))


def shown_path(path: Path) -> str:
    """Return a path for messages: relative to the current folder if it is inside of it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _load_job(
    path: Path,
    check: ConstructCheck | None,
    environ: Mapping[str, str] | None,
    gobblin: GobblinFiles,
    read: Callable[[Path, Mapping[str, str]], Document] | None = None,
) -> tuple[LoadedJob, Document]:
    read_file = read or (gobblin.read if path.suffix.lower() in GOBBLIN_SUFFIXES | {".json"} else _read_yaml)
    written: dict[Loc, str] = {}

    def read_it(path: Path, environ: Mapping[str, str]) -> Document:
        if read is None and (problem := gobblin.refused(path.parent, path)):
            return Document(found=[SpecFault("document", problem, 1)])
        document = read_file(path, environ)
        written.update(document.written)
        for loc, names in document.names.items():
            for name in names:
                if problem := gobblin.allow.variable_problem(name):
                    # Nobody shall learn whether it is set.
                    document.faults[:] = [one for one in document.faults if not one[1].startswith(not_set(name))]
                    document.faults.append((loc, problem, document.line(loc)))
        return document

    def faults(data: Any) -> Iterator[tuple[Loc, str]]:
        return construct_faults(data, check, gobblin.allow, written)

    spec, document = _load(path, JobSpec, environ, faults, read_it)
    lines = {one.name: document.line(("fork", "branches", at)) for at, one in enumerate(spec.fork.branches)}
    return LoadedJob(spec, path, tuple(document.warnings), lines), document


def construct_faults(
    data: Any, check: ConstructCheck | None, allow: AllowLists, written: Mapping[Loc, str]
) -> Iterator[tuple[Loc, str]]:
    """Yield the faults of a job's constructs, and secrets that stand in the job as they are.

    Args:
        data: the raw job.
        check: checks the options of a construct; None: they stay unchecked.
        allow: what the job may use.
        written: the texts of values that held references, as they stand in the file.
    """
    for loc, kind, node in constructs(data) if check else ():
        options = {key: value for key, value in node.items() if key not in _FIELDS.get(kind, {"type"})}
        named = [(at, allow.module_problem(name)) for at, name in _modules(node, loc)]
        if kind == "source" and ":" in node["type"]:
            named.append(((*loc, "type"), allow.source_problem(node["type"])))
        if refused := [(at, problem) for at, problem in named if problem]:
            yield from refused  # do not check further: that would import the module
            continue
        for inner, problem in check(kind, node["type"], options) if check else ():
            yield (*loc, *inner), problem
    yield from literal_secrets((), data, written)


def _modules(node: dict[str, Any], at: Loc) -> Iterator[tuple[Loc, str]]:
    """Yield (place, `module:Class`) of a construct, and of each construct in its options (the format of a source)."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _modules(value, (*at, key))
        elif key in ("type", "format") and isinstance(value, str) and ":" in value:
            yield (*at, key), value


def constructs(data: Any) -> Iterator[tuple[Loc, str, dict[str, Any]]]:
    """Yield (place, kind, mapping) for each construct of a raw job document, which may have any faults."""
    for loc, kind, found in _construct_nodes(data, ()):
        node = {"type": found} if isinstance(found, str) else found
        if isinstance(node, dict) and isinstance(node.get("type"), str):
            yield loc, kind, node


def _construct_nodes(data: Any, at: Loc) -> Iterator[tuple[Loc, str, Any]]:
    if not isinstance(data, dict):
        return
    for key, kind in _SINGLE.items():
        yield (*at, key), kind, data.get(key)
    for key, kind in _LISTS.items():
        for index, node in _items(data.get(key)):
            yield (*at, key, index), kind, node
    fork = data.get("fork")
    if not at and isinstance(fork, dict):
        yield ("fork", "operator"), "fork", fork.get("operator")
        for index, branch in _items(fork.get("branches")):
            yield from _construct_nodes(branch, ("fork", "branches", index))
    commit = data.get("commit")
    if not at and isinstance(commit, dict):
        for index, node in _items(commit.get("steps")):
            yield ("commit", "steps", index), "commit_step", node


def _items(value: Any) -> Iterator[tuple[int, Any]]:
    return iter(enumerate(value if isinstance(value, list) else ()))


def _load(
    path: Path,
    model: type[_Model],
    environ: Mapping[str, str] | None,
    more_faults: Callable[[Any], Iterator[tuple[Loc, str]]],
    read: Callable[[Path, Mapping[str, str]], Document],
) -> tuple[_Model, Document]:
    environ = os.environ if environ is None else environ
    document = read(path, environ)
    remember_passwords(shown_urls(document))
    remember(values_to_hide(document))
    names = [*named_variables(document.data)]
    hide_variables(names)  # code of the user may read them too
    hide_names(names, environ)
    faults = [*document.found, *(document.fault(*fault) for fault in document.faults)]
    if document.data is None:
        if not faults:
            faults.append(SpecFault("", f"is empty; expected keys, at least {', '.join(_required(model))}", 1))
        raise _invalid(path, faults)
    # Report one fault per place: a reference that could not be replaced would also have a wrong type.
    broken = {loc for loc, *_ in document.faults if loc} | document.broken
    found = list(more_faults(document.data))
    try:
        spec = model.model_validate(document.data)
    except ValidationError as error:
        found += explain(error, model, document.written.get)
    faults += [document.fault(loc, document.hide_values(loc, text)) for loc, text in found if loc not in broken]
    if faults:
        raise _invalid(path, faults)
    return spec, document


def _read_yaml(path: Path, environ: Mapping[str, str]) -> Document:
    return read_document(_read(path), environ)


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise UsageError(problem=f"Cannot read {shown_path(path)}: {error.strerror or error}.") from error


def _required(model: type[SpecModel]) -> list[str]:
    return [name for name, field in model.model_fields.items() if field.is_required()]


def _invalid(path: Path, faults: list[SpecFault]) -> InvalidSpecError:
    shown = shown_path(path)
    unique = dict.fromkeys(replace(fault, file="") if fault.file == shown else fault for fault in faults)
    ordered = sorted(unique, key=lambda fault: (fault.file, fault.line or 0))
    if len(ordered) > MAX_FAULTS:
        more = len(ordered) - MAX_FAULTS
        ordered[MAX_FAULTS:] = [SpecFault("", f"has {more:,} more faults; correct these first", ordered[-1].line)]
    return InvalidSpecError(file=shown, faults=tuple(ordered))
