"""An index for the sequences of one dataset."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index; rows stay."""
    op.create_index("gobblin_sequences_by_dataset", "gobblin_sequences", ["job", "dataset_urn", "version_read"])
