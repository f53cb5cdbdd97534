"""Let pyarrow import pandas only after somebody else did: it would do so for the first list that becomes an array.

The import takes a third of a second in each process. pyarrow wants pandas to recognize objects of pandas, and there are
none in a process that has not imported it. Arrays and scalars of a named type then need no pandas; finding out the type
still imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import pyarrow as pa


def import_pandas_when_used() -> None:
    """Tell pyarrow that there is no pandas, and tell it otherwise as soon as a module imports pandas.

    Does nothing if pandas is imported already, or if this pyarrow has another way to find it.
    """
    shim: Any = getattr(pa.lib, "_pandas_api", None)
    # The type is asked: the property itself would import pandas.
    if "pandas" in sys.modules or not hasattr(type(shim), "have_pandas"):
        return
    if any(isinstance(one, _PandasFinder) for one in sys.meta_path):
        return
    finder = _PandasFinder()
    sys.meta_path.insert(0, finder)
    _ = shim.have_pandas
    finder.is_hidden = False


class _PandasFinder(MetaPathFinder):
    """Finds no pandas at first; later finds it, once, and shows it to pyarrow when it is loaded."""

    is_hidden = True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "pandas":
            return None
        if self.is_hidden:
            raise ModuleNotFoundError("pandas is not imported for pyarrow alone", name=fullname)
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _ShowingLoader(spec.loader)
        return spec


class _ShowingLoader(Loader):
    """Loads pandas as its own loader does; afterwards pyarrow looks for it again."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _ = pa.lib._pandas_api.pd  # looks again, and would raise what is wrong with pandas
