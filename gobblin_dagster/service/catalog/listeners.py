"""Make the listeners that `service: {listeners: [...]}` names."""

from __future__ import annotations

from collections.abc import Sequence

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.import_target import load_target
from gobblin_dagster.service.catalog.feed import CatalogListener
from gobblin_dagster.spec.job import ConstructSpec


def make_listeners(specs: Sequence[ConstructSpec]) -> list[CatalogListener]:
    """Return one listener for each entry, in their order; keys beside `type` become arguments of the class.

    Raises:
        UsageError: a class cannot be imported or made, or has no method `flow_changed`.

    Source: gobblin-service `GobblinServiceConfiguration`, which names the parts of the service by their classes.
    """
    return [_make(at, spec) for at, spec in enumerate(specs)]


def _make(at: int, spec: ConstructSpec) -> CatalogListener:
    place = f"gobblin.yaml: service.listeners[{at}] ({spec.type[:80]!r})"
    if ":" not in spec.type:
        raise UsageError(problem=f"{place} is no class.", hint="Write `type: module:Class`.")
    try:
        listener = load_target(spec.type)(**spec.options)
    except ImportError as error:
        hint = "Put the module into the project's folder, or install it, and look at the spelling."
        raise UsageError(problem=f"{place} cannot be imported: {error}.", hint=hint) from error
    except Exception as error:  # the class is the user's: whatever it raises is told, with its place
        problem = f"{place} cannot be made: {type(error).__name__}: {error}."
        raise UsageError(problem=problem, hint="Its arguments are the keys beside `type`.") from error
    if not callable(getattr(listener, "flow_changed", None)):
        problem = f"{place} has no method flow_changed(spec)."
        raise UsageError(problem=problem, hint="See the page on the service, section `Several nodes`.")
    made: CatalogListener = listener
    return made
