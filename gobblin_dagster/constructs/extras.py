"""Find the optional packages that a job needs, for `gobblin check` and for workers; connects to nothing.

Constructs name their own packages, and so do the schemes of paths; those of databases' drivers are in `clients.sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from gobblin_dagster.constructs.clients.sql import DRIVERS
from gobblin_dagster.constructs.registry import ConstructKind, nested_constructs, registry
from gobblin_dagster.core.constructs import FrameSource
from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.traits import PackageTraits, traits_of
from gobblin_dagster.core.utils.optional_packages import EXTRAS, extra_of
from gobblin_dagster.spec.document import show_loc
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.load import constructs
from gobblin_dagster.storage.schemes import scheme_named

_PLACES = ("path", "paths", "url")
"""Options that contain paths, and URLs of files or databases."""


def missing_extras(job: JobSpec) -> list[tuple[str, str]]:
    """Return (place in the job file, problem) of each part of a job whose package is not installed.

    Raises:
        UsageError: a type of the job is not known; it was refused when the job file was read.
    """
    return _missing(needed_packages(job.model_dump(mode="json")))


def require_extras(job: JobSpec) -> None:
    """Raise EnvironmentFaultError if packages of our extras are not installed that the job needs; it names each.

    Asked before anything is read: a package of a writer would else be missed only after the source was read. Parts
    of users import their own packages, and tell of them.
    """
    needed = needed_packages(job.model_dump(mode="json"))
    if missing := _missing((place, module) for place, module in needed if module in EXTRAS):
        facts = " ".join(f"{place}: {problem}" for place, problem in missing)
        raise EnvironmentFaultError(problem=f"Job {job.job!r} needs what is not installed here.", hint=facts)


def missing_store_extras(url: str) -> list[tuple[str, str]]:
    """Return (place in `gobblin.yaml`, problem) of each package that a state store's URL needs and is not there."""
    return _missing(("state", module) for _, module in _of_urls("", {"url": url.removeprefix("files:")}))


def _missing(needed: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(place, extra_of(module).missing()) for place, module in dict.fromkeys(needed) if not is_installed(module)]


def installed_extras() -> list[str]:
    """Return our extras whose packages are all installed, sorted."""
    missing = {one.extra for module, one in EXTRAS.items() if not is_installed(module.partition(".")[0])}
    return sorted({one.extra for one in EXTRAS.values()} - missing)


def is_installed(module: str) -> bool:
    """Return True if a top-level module can be found; imports nothing."""
    try:
        return find_spec(module) is not None
    except ValueError:  # an entry of `sys.modules` without a spec, e.g. a stub
        return False


def needed_packages(job: Mapping[str, Any], *, loads_targets: bool = True) -> Iterator[tuple[str, str]]:
    """Yield (place in the job file, module of an optional package) of each part of a job that needs one.

    Args:
        job: a job document; parts of other types than expected are left out.
        loads_targets: whether modules of users (`module:Class`) are imported to look at their classes; set it to False
            for a job that nobody has checked yet.

    Raises:
        UsageError: a type of the job is not known.
    """
    output = job.get("output")
    if isinstance(output, Mapping):
        yield from _of_urls("output", {"path": output.get("path")})
    for loc, kind, node in constructs(job):
        place = show_loc(loc)
        if not loads_targets and _is_target(node):
            yield from _of_urls(place, node)
            continue
        if kind in list(ConstructKind):  # the others are commit steps
            yield from _of_construct(place, ConstructKind(kind), node, loads_targets=loads_targets)
        if kind != ConstructKind.SOURCE or not _is_read_by_spark(node["type"]):
            yield from _of_urls(place, node)


def _is_target(node: Mapping[str, Any]) -> bool:
    return ":" in str(node.get("type"))


def _is_read_by_spark(source_type: str) -> bool:
    """Return True for a source whose paths and URLs Spark reads, with packages of its own."""
    return issubclass(registry.load(ConstructKind.SOURCE, source_type), FrameSource)


def _of_construct(
    place: str, kind: ConstructKind, node: Mapping[str, Any], *, loads_targets: bool
) -> Iterator[tuple[str, str]]:
    cls = registry.load(kind, node["type"])
    yield from ((place, module) for module in traits_of(cls, PackageTraits).packages)
    for name, inner in nested_constructs(cls.Options):
        given = {"type": node[name]} if isinstance(node.get(name), str) else node.get(name)
        if isinstance(given, dict) and (loads_targets or not _is_target(given)):
            yield from _of_construct(f"{place}.{name}", inner, given, loads_targets=loads_targets)


def _of_urls(place: str, node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in _PLACES:
        given = node.get(key)
        for text in given if isinstance(given, list | tuple) else [given]:
            scheme, mark, _ = text.partition("://") if isinstance(text, str) else ("", "", "")
            if mark:
                modules = (*scheme_named(scheme.lower()).packages, DRIVERS.get(scheme.lower(), ""))
                yield from ((f"{place}.{key}", module) for module in modules if module)
