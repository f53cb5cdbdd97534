"""The resource `/flowtemplates`: what flows can be made of. Gobblin has no such resource."""

from __future__ import annotations

from typing import Any

from gobblin_dagster.service.api.errors import BadRequest
from gobblin_dagster.service.api.guard import Guard
from gobblin_dagster.service.api.messages import Answer, Request, collection
from gobblin_dagster.service.catalog.templates import TemplateCatalog, TemplateError
from gobblin_dagster.service.security.access import Action


class FlowTemplatesResource:
    """Answers requests about templates."""

    def __init__(self, templates: TemplateCatalog, guard: Guard) -> None:
        self._templates = templates
        self._guard = guard

    def get_all(self, request: Request) -> Answer:
        """GET all templates; one with faults says which."""
        self._guard.require(request, Action.READ, None)
        elements = [self._document(uri) for uri in self._templates.uris()]
        return collection(elements, request.path, request.query, 0, None, more=False)

    def find(self, request: Request, name: str) -> Answer:
        """Refuse finders."""
        raise BadRequest(f"There is no finder {name[:40]!r}.")

    def action(self, request: Request, name: str) -> Answer:
        """Refuse actions."""
        raise BadRequest(f"There is no action {name[:40]!r}.")

    def _document(self, uri: str) -> dict[str, Any]:
        try:
            spec = self._templates.load(uri).spec
        except TemplateError as error:
            return {"uri": uri, "description": "", "parameters": {}, "problem": str(error)}
        parameters = {name: parameter.model_dump(mode="json") for name, parameter in spec.parameters.items()}
        return {"uri": uri, "description": spec.description, "parameters": parameters, "problem": ""}
