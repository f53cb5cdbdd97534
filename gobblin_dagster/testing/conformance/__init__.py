"""Conformance classes: tests of each protocol, for whoever implements it to inherit. Read first: `storage.py`.

One module for each protocol. They import pytest and this package, nothing else; pytest is installed by the extra
`conformance`. A test that fails says which sentence of the protocol was broken.
"""

from gobblin_dagster.core.utils.optional_packages import optional_package

with optional_package("pytest", "the conformance classes", extra="conformance"):
    import pytest

_MODULES = ("state_store", "step_store", "storage")
# Before they are imported: what is not rewritten then shows no values when it fails.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _MODULES))

from gobblin_dagster.testing.conformance.state_store import QuickStateStoreConformance, StateStoreConformance  # noqa: E402
from gobblin_dagster.testing.conformance.step_store import StepStoreConformance  # noqa: E402
from gobblin_dagster.testing.conformance.storage import FolderStorageConformance, StorageConformance  # noqa: E402

__all__ = [
    "FolderStorageConformance",
    "QuickStateStoreConformance",
    "StateStoreConformance",
    "StepStoreConformance",
    "StorageConformance",
]
