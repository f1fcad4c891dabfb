"""Secrets are sealed"""

import sqlalchemy as sa
from alembic import op

from migrations.seals import COLUMNS, open_rows

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A sealed secret is longer; SQLite holds no text to its length. `migrations.run` seals.
    if op.get_context().dialect.name == "postgresql":
        for table, column in COLUMNS:
            op.alter_column(table, column, type_=sa.Text())


def downgrade() -> None:
    open_rows(op.get_bind())
    if op.get_context().dialect.name == "postgresql":
        for table, column in COLUMNS:
            op.alter_column(table, column, type_=sa.String(200))
