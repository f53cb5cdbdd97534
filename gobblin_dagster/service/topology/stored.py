"""StoredTopology: topology files that came over REST, in the service's database, where all nodes see them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from gobblin_dagster.core.allow import EVERYTHING, AllowLists
from gobblin_dagster.core.errors import FlowNotFoundError, InvalidSpecError, SpecFault, UsageError
from gobblin_dagster.core.utils.text import storable
from gobblin_dagster.engine.allowed import option_problems
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.store.store import ServiceStore, Transaction
from gobblin_dagster.service.store.topology_rows import StoredFile, list_files, newest_topology, save_file
from gobblin_dagster.service.topology.files import TopologyFolder, read_topology
from gobblin_dagster.service.topology.model import TopologySpec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class StoredTopology:
    """Keeps files; a change is stored only if the whole topology, with the files of the folder, has no fault after it.

    Args:
        store: the service's store.
        folder: the folder of topology files.
        templates: where the templates of edges are.
        allow: what executors of stored files may name. The folder's files come from the people who run the
            project, these from all who may send requests.
        root: the project's folder; default: `folder`.
    """

    def __init__(
        self,
        store: ServiceStore,
        folder: Path,
        templates: TemplateCatalog,
        allow: AllowLists = EVERYTHING,
        root: Path | None = None,
    ) -> None:
        self._store = store
        self._folder = folder
        self._templates = templates
        self._allow = allow
        self._root = str(root or folder)

    def version(self) -> int:
        """Return the number of the newest change; raises TransientError."""
        with self._store.read() as transaction:
            return newest_topology(transaction)

    def files(self) -> list[StoredFile]:
        """Return the files, by name."""
        with self._store.read() as transaction:
            return list_files(transaction)

    def texts(self) -> dict[str, str]:
        """Return the files as `read_topology` takes them."""
        return texts_of(self.files())

    def put(self, name: str, body: str, by: str, note: Callable[[Transaction], None]) -> int:
        """Store a file in the place of one with its name; return the number of the change.

        Raises:
            UsageError: the name is none.
            InvalidSpecError: the topology would have faults, or the file names what the project does not allow.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                problem=f"{name[:80]!r} is no name of a topology file.",
                hint="Letters, digits, `.`, `_` and `-`, beginning with a letter or digit, at most 63.",
            )
        if storable(body) != body:
            raise UsageError(problem="The file holds a NUL or half a unicode character.")
        return self._change(name, body, by, note)

    def delete(self, name: str, by: str, note: Callable[[Transaction], None]) -> int:
        """Delete a file; raises FlowNotFoundError, and InvalidSpecError if the topology would have faults."""
        if name not in {one.name for one in self.files()}:
            raise FlowNotFoundError(problem=f"The service keeps no topology file {name[:80]!r}.")
        return self._change(name, None, by, note)

    def _change(self, name: str, body: str | None, by: str, note: Callable[[Transaction], None]) -> int:
        with self._store.write() as transaction:
            version = save_file(transaction, name, body, by, self._store.now(transaction))
            texts = texts_of(list_files(transaction))
            if self._folder.is_dir() or texts:
                found = read_topology(self._folder, self._templates, texts, new=_shown(name))
                if faults := found.faults or tuple(self._not_allowed(found, _shown(name))):
                    raise InvalidSpecError(file="the topology", faults=faults)
            note(transaction)
        return version

    def _not_allowed(self, found: TopologyFolder, file: str) -> Iterator[SpecFault]:
        """Yield a fault for each setting of a file's executors that the project does not allow."""
        for name, spec in found.graph.executors.items():
            place = found.places["executors", name]
            if place.file == file:
                for problem in self._problems(spec):
                    yield SpecFault(f"executors.{name}", problem, place.line, file)

    def _problems(self, spec: TopologySpec) -> list[str]:
        if spec.kafka is not None:
            return option_problems(spec.kafka.model_dump(), self._root, self._allow)
        if spec.rest is not None:
            files = {f"{name}_file": getattr(spec.rest, name) for name in ("ca", "certificate", "key")}
            return option_problems({"url": spec.rest.url, **files}, self._root, self._allow)
        if spec.dagster is not None:
            about = {"url": spec.dagster.url, "token_env": spec.dagster.token_env, "ca_file": spec.dagster.ca}
            return option_problems(about, self._root, self._allow)
        return []


def texts_of(files: Iterable[StoredFile]) -> dict[str, str]:
    """Return stored files as `read_topology` takes them."""
    return {_shown(one.name): one.body for one in files}


def _shown(name: str) -> str:
    return f"{name} (in the service)"
