"""Excerpts vote on the language"""

import sqlalchemy as sa
from alembic import op

from models.base import JsonData

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("voters", JsonData, nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "voters")
