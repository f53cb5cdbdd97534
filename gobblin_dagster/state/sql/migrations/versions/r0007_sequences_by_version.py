"""An index for old sequences of one dataset."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index; rows stay."""
    op.create_index("gobblin_sequences_by_version", "gobblin_sequences", ["job", "version_read", "dataset_urn"])
