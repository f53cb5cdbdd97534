"""Columns by which rows of executions, jobs, events and orders are found."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_

from gobblin_dagster.service.model import ExecutionId, FlowId


def key_of(execution: ExecutionId) -> dict[str, Any]:
    """Return the values of the columns that name an execution."""
    return {
        "flow_group": execution.flow.group,
        "flow_name": execution.flow.name,
        "execution_id": execution.number,
    }


def is_of_flow(table: Any, flow: FlowId) -> Any:
    """Tell whether a row is of a flow."""
    return and_(table.c.flow_group == flow.group, table.c.flow_name == flow.name)


def is_execution(table: Any, execution: ExecutionId) -> Any:
    """Tell whether a row is of an execution."""
    return and_(
        table.c.flow_group == execution.flow.group,
        table.c.flow_name == execution.flow.name,
        table.c.execution_id == execution.number,
    )


def id_of(row: Any) -> ExecutionId:
    """Return the execution that a row is of."""
    return ExecutionId(FlowId(row.flow_group, row.flow_name), row.execution_id)
