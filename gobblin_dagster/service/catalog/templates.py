"""Templates: job files with declared parameters, one pack of them in one folder.

A flow may set declared parameters and nothing else. A value is inserted by its declared type and by the place where it
lands: whole values keep their type, texts inside of SQL become literals, paths stay inside of the folder that the
template names. There is no templating language.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import Field, StringConstraints, ValidationError

from gobblin_dagster.core.utils.url_text import climbs, stays_inside
from gobblin_dagster.spec.document import Loc, read_document, show_loc
from gobblin_dagster.spec.explain import explain, nearest
from gobblin_dagster.spec.gobblin.template import GobblinTemplate, job_yaml, read_template
from gobblin_dagster.spec.job import Name, SpecModel

SUFFIXES = (".template", ".yaml", ".yml", ".conf", ".job", ".pull")
_OURS = re.compile(rb"^(?:template|parameters|job)\s*:", re.MULTILINE)
"""Begins a line of a template in YAML."""
_GOBBLINS = re.compile(rb"^\s*[\w.\"-]+\s*(?:=|\{)", re.MULTILINE)
"""Begins a line of Gobblin's templates, in HOCON or Java properties."""

_REFERENCE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_.]*)(:-[^}]*)?\}")
_SQL_KEYS = frozenset({"where", "select", "rule", "sql", "query", "aggregates", "expression", "check", "delete_when"})
"""Keys below which texts are SQL, whatever the construct."""
_JDBC_KEYS = frozenset({"dbtable", "query", "preparequery", "sessioninitstatement"})
"""Options of Spark's JDBC reader, in any case, that are SQL."""
_MAX_BYTES = 1 << 20


class ParameterType(StrEnum):
    """What a parameter's value may be."""

    TEXT = "text"
    """Any text without control characters."""
    NAME = "name"
    """Letters, digits and `_`, beginning with a letter."""
    PATH = "path"
    """A relative path that does not leave its folder."""
    GLOB = "glob"
    """Names of datasets with `*`, and commas between several."""
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    VALUE = "value"
    """Text for a key of Gobblin's, in its templates: no control characters, no `${`, no way up in a path."""
    LIST = "list"
    """Texts with commas between them; they stand alone in the template, never inside of a text."""


class ParameterSpec(SpecModel):
    """A value that flows set."""

    type: ParameterType = ParameterType.TEXT
    """What the value may be."""
    default: str | None = None
    """The value of flows that set none; without a default, flows must set one."""
    pattern: str | None = None
    """A regular expression that the whole value must match."""
    choices: tuple[str, ...] | None = None
    """The only values that are allowed."""
    description: str = ""
    """What the value means; shown by `gobblin flow explain` and in errors."""


class TemplateSpec(SpecModel):
    """A template file."""

    template: Name
    """The template's name; part of the names of jobs that are made of it."""
    description: str = ""
    parameters: dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")], ParameterSpec] = Field(
        default_factory=dict
    )
    """Values that flows set, by name; `${name}` stands for them in the job."""
    job: dict[str, Any]
    """A job file without `job`, its name. `${NAME}` that is no parameter is an environment variable of the executor."""


@dataclass(frozen=True, slots=True)
class Template:
    """A template that was read."""

    uri: str
    spec: TemplateSpec
    lines: Mapping[str, int] = field(default_factory=dict)
    """Line of the first place that refers to a parameter, by its name; empty if lines are not known."""

    def place(self, name: str) -> str:
        """Return where a parameter is used, for errors: `FS:///shop/orders.template:12`."""
        return f"{self.uri}:{self.lines[name]}" if name in self.lines else self.uri

    def with_values(self, values: Mapping[str, str]) -> Template:
        """Return the template with values of operators in place of defaults; `${NAME}` in them is a variable."""
        return replace(self, spec=_with_defaults(self.spec, values))

    def fill(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the job with the values of a flow in it; see `fill`."""
        return fill(self.spec, values)


@dataclass(frozen=True, slots=True)
class GobblinFlowTemplate(Template):
    """A template in a file of Gobblin's."""

    gobblin: GobblinTemplate = field(kw_only=True)
    own: Mapping[str, str] = field(default_factory=dict)
    """Values of operators; they may be what values of flows may not."""

    def with_values(self, values: Mapping[str, str]) -> Template:
        """Return the template with values of operators in place of defaults."""
        return replace(self, spec=_with_defaults(self.spec, values), own=dict(values))

    def fill(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the job with the values of a flow in it; raises TemplateError with all faults.

        A value goes where its key is referred to, as text. Inside of SQL it may only be what cannot end a literal or a
        name.
        """
        job = self.gobblin.job({**self.own, **values})
        faults = [fault.text(fault.file or self.uri) for fault in job.faults]
        for name, value in values.items():
            places = self.gobblin.places_of(job, name)
            if _IN_SQL.fullmatch(value) is None and any(_is_sql(loc) for loc in places):
                faults.append(f"parameter {name!r} stands inside of SQL: it takes letters, digits, `_`, `.`, `-`, `:`")
            if (value.startswith("/") or "://" in value) and any("path" in str(loc[-1]) for loc in places):
                faults.append(f"parameter {name!r} stands in a path: it takes a relative one, got {value[:80]!r}")
        if faults:
            raise TemplateError("; ".join(faults[:10]))
        filled: dict[str, Any] = read_document(job_yaml(job).encode(), None).data
        filled.pop("job", None)  # the service names jobs
        return filled

    def keys(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the keys of the job with the values of a flow in it, which `fill` has checked."""
        return self.gobblin.keys({**self.own, **values})


_IN_SQL = re.compile(r"[A-Za-z0-9_.:]*(?:-[A-Za-z0-9_.:]+)*")
"""Text that can end neither a literal nor a name, nor begin a comment."""


def _with_defaults(spec: TemplateSpec, values: Mapping[str, str]) -> TemplateSpec:
    parameters = {
        name: parameter.model_copy(update={"default": values[name]}) if name in values else parameter
        for name, parameter in spec.parameters.items()
    }
    return spec.model_copy(update={"parameters": parameters})


class TemplateError(Exception):
    """A template cannot be used; the message says which and why."""


class TemplateCatalog:
    """Templates in a folder: `FS:///shop/orders.template` is the file `shop/orders.template` in it.

    A file is read again when it has changed.

    Source: gobblin-runtime `FSJobCatalog` for templates.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._cache: dict[Path, tuple[tuple[int, int], Template]] = {}

    def load(self, uri: str) -> Template:
        """Return a template; raises TemplateError if it does not exist, lies outside of the folder, or has faults."""
        path = self._path(uri)
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            cached = self._cache.get(path)
            if cached is not None and cached[0] == stamp:
                return cached[1]
            if not stat.S_ISREG(status.st_mode):  # to read a pipe would last for ever
                raise TemplateError(f"template {uri} is no file")
            if status.st_size > _MAX_BYTES:
                raise TemplateError(f"template {uri} is larger than {_MAX_BYTES:,} bytes")
            content = path.read_bytes()
            if _is_gobblins(path, content):
                return self._gobblin(path, uri)  # not kept: a file that it inherits may change
            template = _parse(content, uri)
        except OSError as error:
            known = ", ".join(self.uris()[:10]) or "none"
            raise TemplateError(f"template {uri} cannot be read: {error.strerror}; templates: {known}") from error
        self._cache[path] = (stamp, template)
        return template

    def uris(self) -> list[str]:
        """Return the URIs of all templates, sorted."""
        paths = (path for path in self._root.rglob("*") if path.suffix in SUFFIXES and path.is_file())
        return sorted(f"FS:///{path.relative_to(self._root).as_posix()}" for path in paths)

    def _gobblin(self, path: Path, uri: str) -> Template:
        """Read a template of Gobblin's."""
        found = read_template(path, self._root, lambda file: os.path.relpath(file, self._root))
        if found.faults:
            told = "; ".join(fault.text(fault.file or uri) for fault in found.faults[:5])
            raise TemplateError(f"template {uri} has faults: {told}")
        parameters = {
            name: ParameterSpec(type=ParameterType.VALUE, default=default) for name, default in found.parameters.items()
        }
        name = re.sub(r"[^A-Za-z0-9]+", "_", path.stem).strip("_") or "template"
        spec = TemplateSpec.model_construct(
            template=name if name[0].isalpha() else f"t_{name}", description="", parameters=parameters, job={}
        )
        return GobblinFlowTemplate(uri, spec, gobblin=found)

    def _path(self, uri: str) -> Path:
        try:
            relative = unquote(urlsplit(uri).path).lstrip("/")
            path = (self._root / relative).resolve()
        except (ValueError, RuntimeError) as error:  # a NUL, a bracket that is not closed; links in a circle
            raise TemplateError(f"{uri[:200]!r} is no URI of a template: {error}") from error
        if not path.is_relative_to(self._root) or path == self._root:
            raise TemplateError(f"template {uri} lies outside of the folder of templates")
        return path


def _is_gobblins(path: Path, content: bytes) -> bool:
    if path.suffix == ".template":  # both call theirs so
        return _OURS.search(content) is None and _GOBBLINS.search(content) is not None
    return path.suffix not in (".yaml", ".yml")


def _parse(content: bytes, uri: str) -> Template:
    # References stay: those of parameters are replaced for each flow, those of the environment by the executor.
    document = read_document(content, None)
    faults = [document.fault(*fault) for fault in document.faults]
    if not faults:
        try:
            spec = TemplateSpec.model_validate(document.data)
        except ValidationError as error:
            faults = [document.fault(loc, text) for loc, text in explain(error, TemplateSpec, document.written.get)]
    if not faults:
        faults = [document.fault(("parameters", name), problem) for name, problem in _parameter_faults(spec)]
        faults += [document.fault(("job", *at), problem) for at, problem in _reference_faults(spec)]
    if not faults and "job" in spec.job:
        faults = [document.fault(("job", "job"), "is set by the service; leave it out")]
    if faults:
        raise TemplateError(f"template {uri} has faults: {'; '.join(fault.text(uri) for fault in faults[:5])}")
    lines: dict[str, int] = {}
    for at, text in _texts(spec.job, ()):
        for name in _names(text):
            lines.setdefault(name, document.line(("job", *at)))
    return Template(uri, spec, lines)


def _reference_faults(spec: TemplateSpec) -> Iterator[tuple[Loc, str]]:
    """Yield references that are neither a parameter nor a variable: names of variables have no dots."""
    for at, text in _texts(spec.job, ()):
        for name in _names(text):
            if "." in name and name not in spec.parameters:
                yield at, f"refers to ${{{name}}}, which is no parameter; {nearest(name, spec.parameters)}"


def _parameter_faults(spec: TemplateSpec) -> Iterator[tuple[str, str]]:
    used = {found for _, text in _texts(spec.job, ()) for found in _names(text)}
    for name, parameter in spec.parameters.items():
        if name not in used:
            yield name, "is used nowhere in the job"
        if parameter.pattern is not None:
            try:
                re.compile(parameter.pattern)
            except re.error as error:
                yield name, f"has a pattern that is no regular expression: {error}"
                continue
        if parameter.default is not None and (problem := value_problem(parameter, parameter.default)):
            yield name, f"has a default that {problem}"


def value_problem(parameter: ParameterSpec, value: str) -> str | None:
    """Return why a parameter cannot have a value; None if it can."""
    problem = _type_problem(parameter.type, value)
    if problem is None and parameter.choices is not None and value not in parameter.choices:
        problem = f"is not one of {', '.join(parameter.choices)}"
    if problem is None and parameter.pattern is not None and not re.fullmatch(parameter.pattern, value):
        problem = f"does not match the pattern {parameter.pattern}"
    return problem


_PATTERNS = {
    ParameterType.NAME: (r"[A-Za-z][A-Za-z0-9_]*", "is no name: letters, digits and `_`, beginning with a letter"),
    ParameterType.INTEGER: (r"[-+]?[0-9]{1,18}", "is no integer"),
    ParameterType.NUMBER: (r"[-+]?[0-9]{1,18}(\.[0-9]{1,18})?", "is no decimal number"),
    ParameterType.BOOLEAN: (r"true|false", "is neither true nor false"),
}


def _type_problem(kind: ParameterType, value: str) -> str | None:
    if any(sign < " " or sign == "\x7f" for sign in value):
        return "holds a control character"
    if kind in _PATTERNS:
        pattern, problem = _PATTERNS[kind]
        return None if re.fullmatch(pattern, value) else problem
    if kind is ParameterType.VALUE and ("${" in value or climbs(value)):
        return "holds `${` or `..`, which values of Gobblin's templates cannot"
    if kind is ParameterType.PATH and not stays_inside(value):
        return "is no relative path inside of its folder"
    return None


def missing_and_unknown(
    template: TemplateSpec, values: Mapping[str, str], place: Callable[[str], str] | None = None
) -> Iterator[str]:
    """Yield each parameter that a flow must set and does not, and each value that the template does not take.

    `place` returns where a parameter is used (`Template.place`); default: messages name no place.
    """
    for name, parameter in template.parameters.items():
        if name not in values and parameter.default is None:
            shown = f" ({parameter.description})" if parameter.description else ""
            used = f", used in {place(name)}" if place else ""
            yield f"template {template.template} needs the parameter {name!r}{shown}{used}"
        elif name in values and (problem := value_problem(parameter, values[name])):
            yield f"parameter {name!r} of template {template.template}: {values[name][:80]!r} {problem}"


def fill(template: TemplateSpec, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the template's job with the values of a flow in it.

    What is left of references are those to environment variables, which the executor replaces; a `$` inside of a
    flow's value is doubled, so that no value can name a variable.

    Args:
        template: the template.
        values: checked by `missing_and_unknown`; parameters without a value take their default.

    Raises:
        TemplateError: a value cannot stand at its place.
    """
    # A default was written by who wrote the template: it may name a variable of the executor's environment.
    chosen = {
        name: values[name].replace("$", "$$") if name in values else parameter.default or ""
        for name, parameter in template.parameters.items()
    }
    filled: dict[str, Any] = _filled(template.job, (), template.parameters, chosen)
    return filled


def _filled(node: Any, at: Loc, parameters: Mapping[str, ParameterSpec], values: Mapping[str, str]) -> Any:
    if isinstance(node, dict):
        return {key: _filled(value, (*at, key), parameters, values) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled(value, (*at, index), parameters, values) for index, value in enumerate(node)]
    if not isinstance(node, str):
        return node
    whole = _REFERENCE.fullmatch(node)
    if whole and whole[1] in parameters and (not _is_sql(at) or _is_table(parameters[whole[1]].type, at)):
        return _typed(parameters[whole[1]].type, values[whole[1]])

    def insert(found: re.Match[str]) -> str:
        name = found[1]
        if name not in parameters:
            return found[0]  # the executor's: a variable of its environment, or `$$`
        return _inside(parameters[name].type, name, values[name], at)

    return _REFERENCE.sub(insert, node)


def _typed(kind: ParameterType, value: str) -> Any:
    if kind is ParameterType.INTEGER:
        return int(value)
    if kind is ParameterType.NUMBER:
        return float(value)
    if kind is ParameterType.BOOLEAN:
        return value == "true"
    if kind is ParameterType.LIST:
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _inside(kind: ParameterType, name: str, value: str, at: Loc) -> str:
    """Return a value as it stands inside of a text."""
    if kind is ParameterType.LIST:
        raise TemplateError(f"parameter {name!r} is a list and cannot stand inside of the text at {show_loc(at)}")
    if not _is_sql(at) or kind in (ParameterType.INTEGER, ParameterType.NUMBER, ParameterType.BOOLEAN):
        return value
    if kind is ParameterType.NAME:
        if at[0] == "source":  # each database has a quote of its own
            raise TemplateError(
                f"parameter {name!r} is a name and cannot stand inside of SQL of a source ({show_loc(at)})"
            )
        return f'"{value}"'
    # Some databases take a backslash inside of a literal for an escape; then it could end the literal.
    if "\\" in value:
        raise TemplateError(f"parameter {name!r} holds a backslash and stands inside of SQL at {show_loc(at)}")
    return "'" + value.replace("'", "''") + "'"


def _is_sql(at: Loc) -> bool:
    # The conditions of a fork stand below the names of its branches.
    is_fork = at[:3] == ("fork", "operator", "branches")
    return is_fork or any(part in _SQL_KEYS or str(part).lower() in _JDBC_KEYS for part in at)


def _is_table(kind: ParameterType, at: Loc) -> bool:
    """Return whether a whole text is the name of a table, which needs no quotes."""
    return kind is ParameterType.NAME and str(at[-1]).lower() == "dbtable"


def _names(text: str) -> Iterator[str]:
    return (found[1] for found in _REFERENCE.finditer(text) if found[1])


def _texts(node: Any, at: Loc) -> Iterator[tuple[Loc, str]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _texts(value, (*at, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _texts(value, (*at, index))
    elif isinstance(node, str):
        yield at, node


_ODD = re.compile("[\\x7f-\\x9f\\u2028\\u2029\\ufeff\\ufffe\\uffff]")
"""Characters that JSON takes as they are, and YAML, as which executors read a job, for line breaks or not at all."""


def job_document(filled: Mapping[str, Any], name: str) -> str:
    """Return a filled job as JSON, with its name, as executors get it."""
    text = json.dumps({"job": name, **filled}, ensure_ascii=False, separators=(",", ":"))
    return _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def keys_body(keys: Mapping[str, str]) -> str:
    """Return a body that carries the keys of a Gobblin job; references in them are `${env:NAME}`."""
    return json.dumps({_KEYS: dict(keys)}, ensure_ascii=False, separators=(",", ":"))


def keys_of_body(body: str) -> Mapping[str, str] | None:
    """Return the keys that a body carries; None if it is a job file of ours."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):  # the last: too deep
        return None
    keys = document.get(_KEYS) if isinstance(document, dict) and len(document) == 1 else None
    return keys if isinstance(keys, dict) and all(isinstance(text, str) for text in keys.values()) else None


_KEYS = "gobblin"
