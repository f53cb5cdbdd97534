"""An index that finds properties by name and value."""

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_AT_ONCE = 1_000

_properties = sa.table(
    "gobblin_flow_properties",
    sa.column("flow_group", sa.Text),
    sa.column("flow_name", sa.Text),
    sa.column("name", sa.Text),
    sa.column("value", sa.Text),
    sa.column("value_digest", sa.Text),
)


def upgrade() -> None:
    """Give each stored value its digest."""
    op.add_column("gobblin_flow_properties", sa.Column("value_digest", sa.Text, nullable=False, server_default=""))
    connection = op.get_bind()
    key = (_properties.c.flow_group, _properties.c.flow_name, _properties.c.name)
    statement = (
        sa.update(_properties)
        .where(*(column == sa.bindparam(f"its_{column.name}") for column in key))
        .values(value_digest=sa.bindparam("digest"))
    )
    rows = connection.execute(sa.select(*key, _properties.c.value)).all()
    for at in range(0, len(rows), _AT_ONCE):
        given = [
            {
                "its_flow_group": row.flow_group,
                "its_flow_name": row.flow_name,
                "its_name": row.name,
                "digest": hashlib.sha256(row.value.encode()).hexdigest()[:32],
            }
            for row in rows[at : at + _AT_ONCE]
        ]
        connection.execute(statement, given)
    op.create_index("gobblin_flow_properties_by_value", "gobblin_flow_properties", ["name", "value_digest"])
    op.drop_index("gobblin_flow_properties_by_name", table_name="gobblin_flow_properties")
