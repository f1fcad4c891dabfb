"""Batches and their items"""

import sqlalchemy as sa
from alembic import op

from models.base import Instant, JsonData

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("key_id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("manifest_key", sa.Text(), nullable=True),
        sa.Column("prefix", sa.Text(), nullable=True),
        sa.Column("glob", sa.Text(), nullable=True),
        sa.Column("defaults", JsonData, nullable=False),
        sa.Column("num_lines", sa.BigInteger(), nullable=True),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("last_key", sa.Text(), nullable=True),
        sa.Column("next_index", sa.BigInteger(), nullable=False),
        sa.Column("expanded_at", Instant(), nullable=True),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("lease_expires_at", Instant(), nullable=True),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("results_round", sa.BigInteger(), nullable=False),
        sa.Column("webhook_url", sa.Text(), nullable=True),
        sa.Column("webhook_secret", sa.String(length=200), nullable=True),
        sa.Column("error_code", sa.String(length=64), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("started_at", Instant(), nullable=True),
        sa.Column("cancel_requested_at", Instant(), nullable=True),
        sa.Column("finished_at", Instant(), nullable=True),
        sa.CheckConstraint(
            "(status = 'failed') = (error_code IS NOT NULL)",
            name=op.f("ck_batches_failed_has_error_code"),
        ),
        sa.CheckConstraint(
            "(status IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name=op.f("ck_batches_final_has_finished_at"),
        ),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')",
            name=op.f("ck_batches_status"),
        ),
        sa.CheckConstraint(
            "(manifest_key IS NULL) <> (prefix IS NULL)", name=op.f("ck_batches_one_source")
        ),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.id"], name=op.f("fk_batches_key_id_api_keys")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
    )
    op.create_index("ix_batches_key_id_id", "batches", ["key_id", "id"], unique=False)
    op.create_index("ix_batches_status", "batches", ["status"], unique=False)
    op.create_table(
        "batch_items",
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("index", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("custom_id", sa.String(length=500), nullable=True),
        sa.Column("job_id", sa.Uuid(), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("error_code", sa.String(length=64), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "status IN ('open', 'completed', 'failed', 'cancelled')",
            name=op.f("ck_batch_items_status"),
        ),
        sa.ForeignKeyConstraint(
            ["batch_id"],
            ["batches.id"],
            name=op.f("fk_batch_items_batch_id_batches"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("batch_id", "index", name=op.f("pk_batch_items")),
    )
    op.create_index(
        "ix_batch_items_custom_id", "batch_items", ["batch_id", "custom_id"], unique=False
    )
    op.create_index("ix_batch_items_job_id", "batch_items", ["job_id"], unique=False)
    op.create_index("ix_batch_items_status", "batch_items", ["batch_id", "status"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_batch_items_status", table_name="batch_items")
    op.drop_index("ix_batch_items_job_id", table_name="batch_items")
    op.drop_index("ix_batch_items_custom_id", table_name="batch_items")
    op.drop_table("batch_items")
    op.drop_index("ix_batches_status", table_name="batches")
    op.drop_index("ix_batches_key_id_id", table_name="batches")
    op.drop_table("batches")
