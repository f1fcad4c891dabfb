"""Lines that retry can read again; kept answers are sealed"""

import sqlalchemy as sa
from alembic import op

from models.base import JsonData

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("batch_items", sa.Column("line", JsonData, nullable=True))
    # Kept in the clear, under keys that are looked for by their hash now.
    op.execute("DELETE FROM idempotent_answers")


def downgrade() -> None:
    op.execute("DELETE FROM idempotent_answers")
    op.drop_column("batch_items", "line")
