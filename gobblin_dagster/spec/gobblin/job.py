"""Convert a Gobblin job file to ours: keys become fields by `KEYS`, and classes become constructs.

What comes out is the text of a YAML job file, which is then read like any other: a job that was converted to YAML is
the same job by construction. Beside it stand the faults of what could not become a field, warnings of what is known and
not carried, and for each part the key that it came from, so that later faults name that key with its file and line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gobblin_dagster.core.errors import SpecFault
from gobblin_dagster.core.secrets import is_secret_name
from gobblin_dagster.spec.document import Loc
from gobblin_dagster.spec.gobblin import classes as tables
from gobblin_dagster.spec.gobblin import combine, lookup, values
from gobblin_dagster.spec.gobblin.constructs import ClassError, Construct, construct_of, snake
from gobblin_dagster.spec.gobblin.entries import ENCRYPTED, Entries, Entry
from gobblin_dagster.spec.gobblin.files import read_entries
from gobblin_dagster.spec.gobblin.keys import KEYS, Key
from gobblin_dagster.spec.gobblin.lookup import FIELD

_VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)\}")
_ONLY_REFERENCES = re.compile(r"(?:\$\{\w+\})+")
Scope = int | None
"""A branch's index; None for the job."""


@dataclass(slots=True)
class GobblinJob:
    """A converted Gobblin job file."""

    data: dict[str, Any] = field(default_factory=dict)
    """A job document, with references to variables not replaced."""
    origins: dict[Loc, Entry] = field(default_factory=dict)
    faults: list[SpecFault] = field(default_factory=list)
    warnings: list[SpecFault] = field(default_factory=list)


def read_job(
    path: Path,
    root: Path,
    own_classes: Mapping[str, Mapping[str, Any]],
    environ: Mapping[str, str],
    shown: Callable[[Path], str],
    refused: Callable[[Path], str],
) -> GobblinJob:
    """Convert a job file with all that it includes and inherits.

    Args:
        path: the file.
        root: the jobs folder.
        own_classes: `classes` of gobblin.yaml: declarations by class name.
        environ: environment variables, only to know which are set.
        shown: returns the name of a file for messages.
        refused: returns why a file must not be read, or an empty text.
    """
    return convert(read_entries(path, root, shown, environ, refused), own_classes)


def convert(entries: Entries, own_classes: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> GobblinJob:
    """Convert keys whose references were replaced; arguments as in `read_job`."""
    job = GobblinJob(faults=list(entries.faults))
    _Conversion(job, own_classes, entries.lists).run(entries.by_key, entries.referred)
    return job


class _Conversion:
    """Turns the keys of one job into its document."""

    def __init__(self, job: GobblinJob, own_classes: Mapping[str, Mapping[str, Any]], lists: Collection[str]) -> None:
        self._job = job
        self._lists = lists
        """Environment variables whose values hold a comma."""
        self._own_classes = own_classes
        self._given: dict[Scope, dict[str, Entry]] = {None: {}}
        """Known keys by scope and name."""
        self._taken: set[tuple[str, Scope]] = set()
        """Keys that became fields; the others are reported."""
        self._own_keys = {key for one in own_classes.values() for key in one.get("keys", {}).values()}
        """Keys that user-defined classes read (`keys` in `classes` of gobblin.yaml)."""
        self._own_given: dict[str, Entry] = {}
        self._own_taken: set[str] = set()
        self._unknown = 0
        """Number of keys that nobody knows."""
        self._rests: dict[int, str] = {}
        """For each branch, the part of its final folder after the part that all branches share."""

    def run(self, by_key: Mapping[str, Entry], referred: set[str]) -> None:
        self._by_key = by_key
        self._table = self._table_name()
        for entry in by_key.values():
            self._sort(entry, referred)
        self._branches = self._branch_count()
        self._source()
        self._plain_fields()
        self._without_watermark()
        self._full_extract()
        self._table_type()
        self._zone()
        self._names()
        for scope in self._scopes():
            self._parts(scope)
        self._output()
        self._fork()
        self._tell_untaken()

    def _table_name(self) -> str:
        """Return Gobblin's name of the table, with which keys such as `<table>.remove.fields` begin."""
        entry = self._by_key.get("source.class")
        if entry is not None and entry.text.rpartition(".")[2].startswith("DatePartitioned"):
            folder = self._by_key.get("source.filebased.data.directory")
            return folder.text.rstrip("/").rpartition("/")[2] if folder is not None else ""
        table = self._by_key.get("extract.table.name")
        return table.text if table is not None else ""

    # Sorting keys

    def _sort(self, entry: Entry, referred: set[str]) -> None:
        if not entry.text:
            return  # as good as not there: templates to fill in hold many
        name, scope = lookup.split(lookup.of_table(entry.key, self._table))
        known = lookup.known(name) or lookup.known(entry.key)
        if entry.key in self._own_keys and self._may_stand(entry):
            self._own_given[entry.key] = entry
        if not known:
            if entry.key not in self._own_keys | referred:
                self._fault(entry, f"is no key that is known; {lookup.hint_for(entry.key, self._unknown)}")
                self._unknown += 1
            return
        if known[0].name.endswith("*"):
            name, scope = known[0].name, None
        is_carried = any(key.field for key in known)
        variables = [one for one in _VARIABLE.findall(entry.text) if one in self._lists]
        if is_carried and variables and any(key.is_list for key in known):
            self._fault(
                entry,
                f"${{env:{variables[0]}}} holds a list, but a variable is one item here; take a variable for each",
            )
        elif is_carried:
            if entry.key in self._own_given or self._may_stand(entry):
                self._given.setdefault(scope, {})[name] = entry
        elif self._holds(known[0], entry):
            return
        elif known[0].is_refused:
            self._fault(
                entry, f"cannot be carried, and without it other data would be read or written: {known[0].note}"
            )
        elif entry.is_own:
            self._warn(entry, f"is not carried: {known[0].note}")

    def _may_stand(self, entry: Entry) -> bool:
        """Return whether a value is allowed in a job file; add a fault if it is a secret."""
        if ENCRYPTED.search(entry.text):
            self._fault(
                entry, "values in ENC(...) are not read; put the secret into the environment, write ${env:NAME}"
            )
            return False
        if is_secret_name(entry.key) and not _ONLY_REFERENCES.fullmatch(entry.text):
            self._fault(entry, "a secret must not stand in a job file; put it into the environment, write ${env:NAME}")
            return False
        return True

    @staticmethod
    def _holds(key: Key, entry: Entry) -> bool:
        return "*" in key.holds or entry.text.lower() in key.holds

    def _branch_count(self) -> int:
        highest = max((scope for scope in self._given if scope is not None), default=-1) + 1
        asked = self._given[None].get("fork.branches")
        if asked is None:
            operator = self._given[None].get("fork.operator.class")
            if highest > 1 and (operator is None or operator.text.endswith("IdentityForkOperator")):
                entry = next(iter(self._given[highest - 1].values()))
                self._fault(entry, f"there is no branch {highest - 1}: without fork.branches there is one; add it")
            return max(highest, 1)
        self._taken.add(("fork.branches", None))
        branches = _digits(asked.text)
        if branches is None or not 1 <= branches <= lookup.MAX_BRANCHES:
            self._fault(
                asked, f"expected a number of branches from 1 to {lookup.MAX_BRANCHES:,}, got {asked.text[:20]!r}"
            )
            return max(highest, 1)
        for scope in range(branches, highest):
            for entry in self._given.get(scope, {}).values():
                self._fault(entry, f"there is no branch {scope}: fork.branches is {asked.text}, the first is 0")
        return branches

    def _scopes(self) -> list[Scope]:
        return [None, *range(self._branches)]

    # Fields

    def _source(self) -> None:
        entry = self._take("source.class", None)
        self._source_type = self._source_class = ""
        if entry is None:
            return
        found = self._construct("source", tables.SOURCES, entry.text, entry)
        if found is not None:
            self._put(("source",), found.declaration, entry)
            self._source_type, self._source_class = str(found.declaration["type"]), found.known_as

    def _plain_fields(self) -> None:
        """Set the fields outside of constructs, and the options of the source."""
        fields = dict.fromkeys(key.field for key in KEYS if key.field)
        for name in fields:
            match = FIELD.fullmatch(name)
            if match is None and name in _STRUCTURAL:
                continue
            if match is not None and (match["slot"] != "source" or match["type"] != self._source_type):
                continue
            loc: Loc = ("source", *match["option"].split(".")) if match else tuple(name.split("."))
            if _has(self._job.data, loc):
                continue  # `classes` of gobblin.yaml says so already
            self._set_field(name, loc, None)

    def _set_field(self, name: str, loc: Loc, scope: Scope) -> None:
        keys = [key for key in KEYS if key.field == name]
        found = {key.name: entry for key in keys if (entry := self._take(key.name, scope)) is not None}
        if not found:
            return
        first = next(iter(found.values()))
        try:
            if name in combine.COMBINED:
                texts = {key: entry.text for key, entry in found.items()}
                for asked in combine.ASKED.get(name, ()):
                    if other := self._find(asked, scope):
                        texts[asked] = other.text
                value = self._of_own_class(name, texts) or combine.COMBINED[name](texts)
            else:
                key = next(key for key in keys if key.name in found)
                value = key.read(first.text)
        except ValueError as error:
            self._fault(first, str(error))
            return
        if value is not None:
            self._put(loc, value, first)
            if name in _TOLD:
                self._warn(found.get("extract.limit.count.limit", first), _TOLD[name])
        elif name in _IGNORED:
            self._warn(first, _IGNORED[name])

    def _of_own_class(self, name: str, texts: Mapping[str, str]) -> Any:
        """Return the declaration in `classes` for the class that a field names; None if there is none."""
        if name == "publisher":
            given = texts.get("data.publisher.job.type") or texts.get("data.publisher.type", "")
            own = self._own_classes.get(given)
            if own is not None and values.decides(texts, "data.publisher.replace.final.dir"):
                raise ValueError(
                    f"data.publisher.replace.final.dir=true is not for classes like {given[:80]}; remove it"
                )
            return self._filled(own) if own is not None else None
        if name == "writer(*).partition_by":
            own = self._own_classes.get(texts.get("writer.partitioner.class", ""))
            return combine.own_level(texts, self._filled(own)) if own is not None else None
        return None

    def _filled(self, declared: Mapping[str, Any]) -> dict[str, Any]:
        """Return a declaration of `classes`, with the options that it takes from keys of the job."""
        plain = {name: value for name, value in declared.items() if name != "keys"}
        return plain | self._own_options(declared.get("keys", {}))

    def _own_options(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Return the options of a user-defined class that come from keys of the job, as text, without missing keys."""
        found = {option: self._own_given[key] for option, key in keys.items() if key in self._own_given}
        self._own_taken.update(entry.key for entry in found.values())
        return {option: entry.text for option, entry in found.items()}

    def _without_watermark(self) -> None:
        """Read tables whole in each run where Gobblin does, if each extract replaces the last; else add a fault.

        Gobblin has a watermark only where its column and its type are both given.
        """
        if self._source_type != "query":
            return
        needed = ["extract.delta.fields", *(["source.querybased.watermark.type"] if self._source_class else [])]
        missing = [name for name in needed if name not in self._given[None]]
        source = self._job.data["source"]
        column = self._job.origins.get(("source", "watermark", "column"))
        has_own = "column" in source.get("watermark", {}) and column is None
        if not missing or has_own or "without_watermark" in source or "table_options" in source:
            return  # or `classes` of gobblin.yaml says so already
        asked = {"extract.table.type": "snapshot_only", "extract.is.full": "true"}
        found = [self._find(name, None) for name in asked]
        given = [
            entry for entry, value in zip(found, asked.values(), strict=True) if entry and entry.text.lower() == value
        ]
        source.pop("watermark", None)
        entry = next(iter(given), None) or column or self._given[None]["source.class"]
        self._put(("source", "without_watermark"), "full", entry)
        what = "name the column" if missing[0] == needed[0] else "write it"
        if not given:
            self._fault(
                entry,
                f"{missing[0]} is missing: Gobblin would append whole tables in each run; {what}, or write "
                "extract.is.full=true, so that each extract replaces the last",
            )
        elif column is not None:
            self._warn(
                column,
                f"is no watermark: as in Gobblin, the table is read whole in each run without {needed[1]}",
            )

    def _full_extract(self) -> None:
        """Read on from run to run where Gobblin does although the extract is called full."""
        entry = self._job.origins.get(("extract", "is_full"))
        if self._source_class in _WHOLE_FILES:
            if self._job.data.get("extract", {}).get("is_full") is not True:
                self._warn(
                    self._given[None]["source.class"],
                    "reads each file once here; in Gobblin each run reads and publishes all files again "
                    "(extract.is.full=true: each run reads all, and replaces what was published)",
                )
            return
        if entry is None or self._source_type not in ("files", "kafka") or not self._source_class:
            return
        if self._job.data["extract"].pop("is_full") is not False:
            self._warn(entry, "is not carried: as in Gobblin, each run of this source reads what is new")

    def _table_type(self) -> None:
        """Read on from run to run where Gobblin does, whatever the table is called: `extract.is.full` alone counts."""
        entry = self._job.origins.get(("extract", "type"))
        if entry is None or self._source_type not in _READ_ON:
            return
        is_whole = self._job.data["source"].get("without_watermark") == "full"
        is_full = self._job.data["extract"].get("is_full") is True
        if entry.text.lower() != "snapshot_only" or is_whole or is_full:
            return
        self._put(("extract", "type"), "snapshot_append", entry)
        more = " (extract.is.full=true: all)" if self._source_type == "query" else ""
        self._warn(entry, f"is snapshot_append here: as in Gobblin, each run reads what is new{more}")

    def _zone(self) -> None:
        """Set the zone that Gobblin takes for a source without one: in ours, other rows would be read."""
        source = self._job.data.get("source", {})
        is_dated = self._source_type == "query" or "{date:" in str(source.get("path", ""))
        if is_dated and self._source_type in ("query", "files") and "timezone" not in source:
            self._put(("source", "timezone"), combine.DEFAULT_ZONE, None)

    def _names(self) -> None:
        """Set fields that Gobblin takes from other keys: the table and, for Kafka, the namespace."""
        data, given = self._job.data, self._given[None]
        extract = data.setdefault("extract", {})
        if self._source_type == "files":
            self._take("source.entity", None)  # it names the table, and chooses no files
        self._fixed_names(extract)
        for origin in ("source.entity", "job.name"):
            if "table" not in extract and origin in given:
                self._put(("extract", "table"), values.name(given[origin].text.rpartition(".")[2]), given[origin])
        if self._source_type == "kafka" and "namespace" not in extract:
            extract["namespace"] = "KAFKA"
        for loc in (("job",), ("extract", "namespace"), ("extract", "table")):
            entry = self._job.origins.get(loc)
            value = data.get(loc[0]) if len(loc) == 1 else extract.get(loc[1])
            if entry is not None and "${" in entry.text:
                self._fault(entry, f"names take no variables; write the name instead of {entry.text}")
            elif entry is not None and value != entry.text:
                self._warn(entry, f"is called {value!r} here")

    def _fixed_names(self, extract: dict[str, Any]) -> None:
        """Set namespace and table where Gobblin's source sets them itself, whatever the job's keys say."""
        names: dict[str, str] = {}
        if self._source_class.startswith("DatePartitioned"):
            names = {"table": self._table} if self._table else {}
        elif self._source_class == "SimpleJsonSource":
            extract.setdefault("namespace", "ExampleNamespace")
            names = {"table": "ExampleTable"}
        elif self._source_type == "kafka" and self._source_class:
            own = self._by_key.get("gobblin.kafka.extract.allowTableTypeAndNamspaceCustomization")
            names = {} if own and own.text.lower() == "true" else {"namespace": "KAFKA"}
        for part, name in names.items():
            entry = self._job.origins.pop(("extract", part), None)
            if "${" in name:
                folder = self._by_key["source.filebased.data.directory"]
                self._fault(folder, f"names the table too, and names take no variables; write it instead of {name}")
            elif entry is not None and entry.text != name:
                self._warn(entry, f"is not used: as in Gobblin, the {part} is {name!r} with this source")
            extract[part] = values.name(name)

    # Constructs of the job or of a branch

    def _parts(self, scope: Scope) -> None:
        at: Loc = () if scope is None else ("fork", "branches", scope)
        for slot, kind, table in (
            ("converters", "converter", tables.CONVERTERS),
            ("row_policies", "row policy", tables.ROW_POLICIES),
            ("task_policies", "task policy", tables.TASK_POLICIES),
        ):
            self._list(scope, at, slot, kind, table)
        self._writer(scope, at)
        self._publisher(scope, at)

    def _list(self, scope: Scope, at: Loc, slot: str, kind: str, table: Mapping[str, str]) -> None:
        names = self._take(_LISTS[slot][0], scope)
        types = self._take(_LISTS[slot][1], scope) if len(_LISTS[slot]) > 1 else None
        texts = values.words(names.text) if names else []
        kinds = values.words(types.text) if types else []
        if len(_LISTS[slot]) > 1 and len(texts) != len(kinds):
            one = names or types
            if one is not None:
                self._fault(
                    one, f"expected as many types as there is of each {kind}, got {len(kinds)} for {len(texts)}"
                )
            return
        declared: list[dict[str, Any]] = []
        classes: list[str] = []
        for index, text in enumerate(texts):
            found = names and self._construct(kind, table, text, names)
            if not found or (found.known_as in _TYPING and self._has_types()):
                continue
            declaration = dict(found.declaration)
            if slot != "converters":
                taken = {one.get("name") for one in declared}
                declaration["name"] = _unique(found.name, taken)
                problem = self._policy_type(slot, declaration, kinds[index])
                if problem and types is not None:
                    self._fault(types, problem)
            declared.append(declaration)
            classes.append(found.known_as)
        if not declared or names is None:
            return
        for index in range(len(declared)):
            self._job.origins[*at, slot, index] = names
        self._put((*at, slot), declared, names)
        self._options(slot, (*at, slot), declared, classes, scope)
        if slot == "converters":
            self._tolerance(declared)

    def _has_types(self) -> bool:
        """Return whether the source gives types to columns, and no schema gives others."""
        return self._source_type == "query" and _SCHEMAS.isdisjoint(self._given[None])

    def _policy_type(self, slot: str, declaration: dict[str, Any], kind: str) -> str:
        """Set what happens to rows or work units that break a policy; return the problem if the text is wrong."""
        field_name, meanings = _POLICY_TYPES[slot]
        meaning = meanings.get(kind.upper())
        if meaning is None:
            return f"expected one of {', '.join(meanings)}, got {kind[:60]!r}"
        if slot == "task_policies" and self._given[None].get("data.quality.enforce.failure") is not None:
            entry = self._take("data.quality.enforce.failure", None)
            if entry is None or entry.text.lower() not in ("true", "false"):
                return "expected data.quality.enforce.failure to be true or false"
            meaning = bool(meaning) and entry.text.lower() == "true"
        declaration[field_name] = meaning
        return ""

    def _tolerance(self, declared: list[dict[str, Any]]) -> None:
        entry = self._take("task.skip.error.records", None)
        if entry is None:
            return
        most = _digits(entry.text)
        if most is None:
            self._fault(entry, f"expected a whole number, got {entry.text[:60]!r}")
            return
        for declaration in declared if most else ():
            taken = {one.get("name") for one in declared}
            declaration |= {"on_error": "skip", "max_errors": most}
            declaration.setdefault("name", _unique(snake(str(declaration["type"])), taken))

    def _options(
        self, slot: str, at: Loc, declared: Sequence[dict[str, Any]], classes: Sequence[str], scope: Scope
    ) -> None:
        """Set options of constructs from keys, chosen by type or by Gobblin's class."""
        for index, (declaration, class_name) in enumerate(zip(declared, classes, strict=True)):
            defaults = tables.DEFAULTS.get(class_name, {})
            names = [*lookup.fields_of(slot, str(declaration["type"])), *lookup.fields_of(slot, class_name)]
            for name in dict.fromkeys(names):
                option = name.rpartition(").")[2]
                if option not in declaration or option in defaults:
                    self._set_field(name, (*at, index, option), scope)
            entry = self._given[None].get(_OF_BRANCH)
            is_without = scope is not None and _OF_BRANCH not in self._given.get(scope, {})
            if class_name == "StringFilterConverter" and is_without and entry is not None:
                self._fault(
                    entry,
                    f"a branch reads {_OF_BRANCH}.{scope} alone: without it, Gobblin leaves out all lines that are "
                    "not empty; write it",
                )

    def _writer(self, scope: Scope, at: Loc) -> None:
        if _WRITER_KEYS.isdisjoint(self._given.get(scope, {})) and (
            scope is not None or self._every_branch_has_a_writer()
        ):
            return
        found: dict[str, Any] = {"type": "avro"}
        entries = {name: entry for name in _WRITER_TYPE if (entry := self._take(name, scope)) is not None}
        first = next(iter(entries.values()), None)
        builder = entries.get("writer.builder.class")
        if builder is not None:
            construct = self._construct("writer", tables.WRITERS, builder.text, builder)
            if construct is None:
                return
            found = dict(construct.declaration)
        try:
            if found["type"] in combine.WRITER_TYPES:
                texts = {name: entry.text for name, entry in entries.items()}
                found["type"] = combine.writer_type(texts, found["type"] if builder else None)
        except ValueError as error:
            if first is not None:
                self._fault(first, str(error))
            return
        self._put((*at, "writer"), found, first)
        for name in lookup.fields_of("writer", str(found["type"])):
            option = name.rpartition(").")[2]
            if option not in found:
                self._set_field(name, (*at, "writer", option), scope)

    def _every_branch_has_a_writer(self) -> bool:
        return self._branches > 1 and all(
            not _WRITER_KEYS.isdisjoint(self._given.get(scope, {})) for scope in range(self._branches)
        )

    def _publisher(self, scope: Scope, at: Loc) -> None:
        if scope is None:
            self._set_field("publisher", ("publisher",), None)
            return
        own = [entry for key, entry in self._given.get(scope, {}).items() if key in lookup.names_of("publisher")]
        if own:
            self._set_field("publisher", (*at, "publisher"), scope)
            if "publisher" in self._job.data and not _has(self._job.data, (*at, "publisher")):
                self._put((*at, "publisher"), {"type": "append"}, own[0])  # false here, true for the others

    def _construct(self, slot: str, table: Mapping[str, str], text: str, entry: Entry) -> Construct | None:
        try:
            found = construct_of(slot, table, text, self._own_classes)
        except ClassError as error:
            self._fault(entry, str(error))
            return None
        if found is not None:
            found.declaration.update(self._own_options(found.declaration.pop("keys", {})))
        if found is not None and self._source_type in _TEXT_COLUMNS:
            column = _TEXT_COLUMNS[self._source_type]
            kind = str(found.declaration["type"])
            option = "column" if text.endswith("StringFilterConverter") else _COLUMN_OPTIONS.get(kind)
            if option is not None:
                found.declaration.setdefault(option, [column] if option == "columns" else column)
        return found

    # Fork and output

    def _fork(self) -> None:
        fork = self._job.data.pop("fork", {})
        parts = fork.pop("branches", {})
        branches = []
        for scope in range(self._branches):
            named = self._take("fork.branch.name", scope)
            default = "main" if self._branches == 1 else f"fork_{scope}"
            branch = {"name": values.name(named.text) if named else default} | parts.get(scope, {})
            self._path(scope, branch)
            self._pick_text(branch)
            branches.append(branch)
            if named is not None:
                self._job.origins["fork", "branches", scope, "name"] = named
        operator = self._take("fork.operator.class", None)
        found = self._construct("fork operator", tables.FORKS, operator.text, operator) if operator else None
        if found is not None and found.declaration["type"] != "identity":
            fork = {"operator": found.declaration} | fork
        if len(branches) > 1 or len(branches[0]) > 1 or branches[0]["name"] != "main" or fork:
            self._put(("fork",), fork | {"branches": branches}, operator)

    def _path(self, scope: int, branch: dict[str, Any]) -> None:
        """Set `path` of a branch, so that its rows are published below its own final folder."""
        found = {name: self._find(name, scope) for name in _PATH_KEYS}
        for name in _PATH_KEYS:
            for one in (scope, None):
                self._take(name, one)
        entries = {name: entry for name, entry in found.items() if entry is not None}
        rest = self._rests.get(scope, "")
        try:
            texts = {name: entry.text for name, entry in entries.items()}
            path = combine.branch_path(rest, texts, is_alone=self._branches == 1)
        except ValueError as error:
            self._fault(next(iter(entries.values())), str(error))
            return
        if path is not None:
            branch["path"] = path
            origin = next(iter(entries.values()), None) or self._find("data.publisher.final.dir", scope)
            if origin is not None:
                self._job.origins["fork", "branches", scope, "path"] = origin

    def _pick_text(self, branch: dict[str, Any]) -> None:
        """Write only the message's value as a line of text, which is the record in Gobblin."""
        writer = branch.get("writer") or self._job.data.get("writer", {})
        if self._source_type != "kafka" or writer.get("type") != "text":
            return
        converters = [*self._job.data.get("converters", ()), *branch.get("converters", ())]
        types = {str(one["type"]) for one in converters}
        if not types <= _KEEP_RECORD:
            return
        column = _TEXT_COLUMNS["kafka"]
        is_text = self._job.data["source"].get("value", {}).get("type") == "string"
        steps: list[dict[str, Any]] = []
        if not is_text and "bytes_to_text" not in types:
            steps.append({"type": "bytes_to_text", "columns": [column]})
        steps.append({"type": "select", "columns": [column]})
        if branch["name"] == "main" and self._branches == 1 and "converters" not in branch:
            self._job.data.setdefault("converters", []).extend(steps)
        else:
            branch.setdefault("converters", []).extend(steps)

    def _output(self) -> None:
        finals: list[Entry] = []
        systems: list[str] = []
        for scope in range(self._branches):
            final = self._find("data.publisher.final.dir", scope)
            system = self._find("data.publisher.fs.uri", scope) or self._find("writer.fs.uri", scope)
            system = system or self._find("fs.uri", None)
            finals += [final] if final else []
            systems.append(system.text if system else "")
        for one in self._scopes():
            for name in lookup.names_of("output.path"):
                self._take(name, one)
        if not finals:
            return
        if len(finals) < self._branches:
            without = next(one for one in range(self._branches) if not self._find("data.publisher.final.dir", one))
            self._fault(
                finals[0],
                f"branch {without} has no final folder; add data.publisher.final.dir.{without}, or one for all",
            )
            return
        try:
            path, rests = combine.output_path([entry.text for entry in finals], systems)
        except ValueError as error:
            self._fault(finals[0], str(error))
            return
        self._rests = dict(enumerate(rests))
        output = self._job.data.pop("output", {})
        self._put(("output",), {"path": path} | output, finals[0])
        for name in ("file_mode", "dir_mode", "group"):
            self._same_for_all(f"output.{name}")
            for one in self._scopes():
                if name not in self._job.data["output"]:
                    self._set_field(f"output.{name}", ("output", name), one)

    def _same_for_all(self, name: str) -> None:
        """Add a fault where branches ask for different permissions or groups: files of one would have the other's."""
        for key in lookup.names_of(name):
            found = [self._find(key, scope) for scope in range(self._branches)]
            entry = next((one for one in found if one is not None), None)
            if entry is not None and len({one.text if one else None for one in found}) > 1:
                self._fault(entry, f"all branches have the same permissions and group; write {key} once, without index")

    # Helpers

    def _find(self, name: str, scope: Scope) -> Entry | None:
        """Return a key of a branch, or else of the job."""
        return self._given.get(scope, {}).get(name) or self._given[None].get(name)

    def _take(self, name: str, scope: Scope) -> Entry | None:
        """Return a key of this scope and mark it as used; for a branch's writer, also a key of the job."""
        entry = self._given.get(scope, {}).get(name)
        if entry is None and scope is not None and name in _SHARED:
            entry = self._given[None].get(name)
        if entry is not None:
            self._taken.add((name, scope if name in self._given.get(scope, {}) else None))
        return entry

    def _put(self, loc: Loc, value: Any, entry: Entry | None) -> None:
        node: Any = self._job.data
        for part in loc[:-1]:
            node = node.setdefault(part, {}) if hasattr(node, "setdefault") else node[part]
        node[loc[-1]] = value
        if entry is not None:
            self._job.origins[loc] = entry

    def _fault(self, entry: Entry, problem: str) -> None:
        self._job.faults.append(entry.fault(problem))

    def _warn(self, entry: Entry, problem: str) -> None:
        if (warning := entry.fault(problem)) not in self._job.warnings:
            self._job.warnings.append(warning)

    def _tell_untaken(self) -> None:
        for key, entry in self._own_given.items():
            if key not in self._own_taken and not lookup.known(lookup.split(key)[0]):
                self._warn(entry, "is not used: it is for a class of `classes` that this job does not name")
        for scope, entries in self._given.items():
            for name, entry in entries.items():
                if (
                    (name, scope) in self._taken
                    or entry.key in self._own_taken
                    or not entry.is_own
                    or (scope or 0) >= self._branches
                ):
                    continue
                fields = ", ".join(key.field for key in lookup.BY_NAME[name])
                self._warn(entry, f"is not used: it is for {fields}, which this job does not have")


_LISTS = {
    "converters": ("converter.classes",),
    "row_policies": ("qualitychecker.row.policies", "qualitychecker.row.policy.types"),
    "task_policies": ("qualitychecker.task.policies", "qualitychecker.task.policy.types"),
}
_POLICY_TYPES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "row_policies": ("on_violation", {"FAIL": "fail", "OPTIONAL": "drop", "ERR_FILE": "quarantine"}),
    "task_policies": ("enforce", {"FAIL": True, "FAILED": True, "OPTIONAL": False}),
}
_STRUCTURAL = frozenset(
    {
        "source.type",
        "converters",
        "converters.on_error",
        "row_policies",
        "row_policies.on_violation",
        "task_policies",
        "task_policies.enforce",
        "fork.operator",
        "fork.branches",
        "fork.branches.name",
        "fork.branches.path",
        "writer.type",
        "publisher",
        "output.path",
        "output.file_mode",
        "output.dir_mode",
        "output.group",
    }
)
"""Fields that are set together with others, not one by one."""
_TOLD = {
    "execution.limit.rows": "a work unit ends at the first position behind so many rows, for files at the end of a "
    "file: the rows up to there are read in this run, and none of them again"
}
"""By field, a note on how it differs from Gobblin."""
_IGNORED = {
    "source(query).end": "is not used: as in Gobblin, it bounds full extracts of the types APPEND_... alone",
    "source(query).max_watermark": "is not used: as in Gobblin, it bounds extracts of the types APPEND_... alone, "
    "unless they are full",
}
"""By field, why its keys do not count in a job of this kind."""
_TYPING = frozenset({"JsonIntermediateToAvroConverter", "JsonIntermediateToParquetGroupConverter"})
_SCHEMAS = frozenset({"source.schema", "gobblin.converter.schemaInjector.schema"})
_OF_BRANCH = "converter.string.filter.pattern"
"""A key that Gobblin reads in a branch only with the branch's index."""
_WHOLE_FILES = frozenset({"HadoopTextInputSource", "SimpleJsonSource"})
"""Sources of files whose runs all read all files in Gobblin; here those with `extract.is.full=true` do."""
_READ_ON = frozenset({"files", "kafka", "query"})
"""Sources of Gobblin's that read in each run what is new."""
_PATH_KEYS = ("writer.file.path", "writer.file.pathType", "writer.file.path.type")
_KEEP_RECORD = frozenset({"bytes_to_text", "decrypt", "encrypt", "filter", "sample", "split", "text_to_bytes"})
"""Types of converters that leave the record in its column."""
_WRITER_TYPE = ("writer.output.format", "writer.builder.class", "writer.destination.type")
_WRITER_KEYS = frozenset(key.name for key in KEYS if key.field.startswith("writer"))
_SHARED = _WRITER_KEYS | {
    key.name for key in KEYS if (_match := FIELD.fullmatch(key.field)) is not None and _match["slot"] != "source"
}
"""Options of constructs, which those of a branch take from the job where the branch has none of its own."""
_TEXT_COLUMNS = {"kafka": "value", "files": "line"}
"""The column that holds what Gobblin calls the record, by the source's type."""
_COLUMN_OPTIONS = {
    "avro_bytes": "column",
    "bytes_to_text": "columns",
    "csv_text": "column",
    "json_text": "column",
    "split": "column",
    "text_to_bytes": "columns",
}
"""Options that name this column; Gobblin's converters have no name for it."""


def _has(data: Mapping[str, Any], loc: Loc) -> bool:
    node: Any = data
    for part in loc:
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True


def _digits(text: str) -> int | None:
    """Return a number of digits, as Java reads it; None for another text."""
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else None


def _unique(name: str, taken: Iterable[object]) -> str:
    found, number, names = name, 2, set(taken)
    while found in names:
        found, number = f"{name}_{number}", number + 1
    return found
