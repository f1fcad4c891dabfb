"""All tables of the first release"""

from datetime import UTC, datetime
from uuid import UUID

import sqlalchemy as sa
from alembic import op

from models.base import Instant, JsonData

revision = "0001"
down_revision = None
LOCAL_KEY_ID = UUID("00000000-0000-7000-8000-000000000001")

branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("key_hash", sa.String(length=64), nullable=False),
        sa.Column("scopes", JsonData, nullable=False),
        sa.Column("limits", JsonData, nullable=False),
        sa.Column("webhook_secret", sa.String(length=200), nullable=True),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("last_used_at", Instant(), nullable=True),
        sa.Column("revoked_at", Instant(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("key_hash", name=op.f("uq_api_keys_key_hash")),
    )
    # Owner of everything made without a key; no key has a hash like that.
    op.bulk_insert(
        sa.table(
            "api_keys",
            sa.column("id", sa.Uuid()),
            sa.column("name", sa.String()),
            sa.column("prefix", sa.String()),
            sa.column("key_hash", sa.String()),
            sa.column("scopes", JsonData),
            sa.column("limits", JsonData),
            sa.column("created_at", Instant()),
        ),
        [
            {
                "id": LOCAL_KEY_ID,
                "name": "local",
                "prefix": "local",
                "key_hash": "local",
                "scopes": ["submit", "read", "admin"],
                "limits": {},
                "created_at": datetime(2026, 1, 1, tzinfo=UTC),
            }
        ],
    )
    op.create_table(
        "idempotent_answers",
        sa.Column("key_id", sa.Uuid(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=True),
        sa.Column("status", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column("created_at", Instant(), nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.id"], name=op.f("fk_idempotent_answers_key_id_api_keys")
        ),
        sa.PrimaryKeyConstraint("key_id", "idempotency_key", name=op.f("pk_idempotent_answers")),
    )
    with op.batch_alter_table("idempotent_answers", schema=None) as batch_op:
        batch_op.create_index("ix_idempotent_answers_created_at", ["created_at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_idempotent_answers_subject_id"), ["subject_id"], unique=False
        )

    op.create_table(
        "media",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("key_id", sa.Uuid(), nullable=False),
        sa.Column("storage_key", sa.Text(), nullable=False),
        sa.Column("is_ours", sa.Boolean(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=True),
        sa.Column("content_type", sa.Text(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("source_url", sa.Text(), nullable=True),
        sa.Column("source_headers", JsonData, nullable=True),
        sa.Column("created_at", Instant(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name=op.f("fk_media_key_id_api_keys")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_media")),
    )
    with op.batch_alter_table("media", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_media_key_id"), ["key_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_media_sha256"), ["sha256"], unique=False)
        batch_op.create_index(batch_op.f("ix_media_storage_key"), ["storage_key"], unique=False)

    op.create_table(
        "uploads",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("key_id", sa.Uuid(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("part_bytes", sa.BigInteger(), nullable=True),
        sa.Column("token", sa.String(length=64), nullable=False),
        sa.Column("direct_token", sa.Text(), nullable=True),
        sa.Column("media_id", sa.Uuid(), nullable=True),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("expires_at", Instant(), nullable=False),
        sa.CheckConstraint(
            "part_bytes IS NULL OR part_bytes > 0", name=op.f("ck_uploads_parts_not_empty")
        ),
        sa.CheckConstraint("size_bytes > 0", name=op.f("ck_uploads_not_empty")),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.id"], name=op.f("fk_uploads_key_id_api_keys")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
    )
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.create_index("ix_uploads_expires_at", ["expires_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_uploads_key_id"), ["key_id"], unique=False)

    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("key_id", sa.Uuid(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("events", JsonData, nullable=False),
        sa.Column("secret", sa.String(length=200), nullable=False),
        sa.Column("previous_secret", sa.String(length=200), nullable=True),
        sa.Column("previous_secret_expires_at", Instant(), nullable=True),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("failing_since", Instant(), nullable=True),
        sa.Column("paused_until", Instant(), nullable=True),
        sa.Column("disabled_at", Instant(), nullable=True),
        sa.Column("disabled_reason", sa.String(length=64), nullable=True),
        sa.Column("created_at", Instant(), nullable=False),
        sa.CheckConstraint(
            "(disabled_at IS NULL) = (disabled_reason IS NULL)",
            name=op.f("ck_webhook_endpoints_disabled_has_reason"),
        ),
        sa.CheckConstraint(
            "(failures = 0) = (failing_since IS NULL)",
            name=op.f("ck_webhook_endpoints_failures_have_a_start"),
        ),
        sa.CheckConstraint(
            "(previous_secret IS NULL) = (previous_secret_expires_at IS NULL)",
            name=op.f("ck_webhook_endpoints_previous_secret_expires"),
        ),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.id"], name=op.f("fk_webhook_endpoints_key_id_api_keys")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_endpoints")),
    )
    with op.batch_alter_table("webhook_endpoints", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_webhook_endpoints_key_id"), ["key_id"], unique=False)

    op.create_table(
        "deliveries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("key_id", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("event_type", sa.String(length=64), nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("endpoint_id", sa.Uuid(), nullable=True),
        sa.Column("target_key", sa.String(length=36), nullable=False),
        sa.Column("target_host", sa.String(length=300), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.String(length=200), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("next_attempt_at", Instant(), nullable=True),
        sa.Column("lease_expires_at", Instant(), nullable=True),
        sa.Column("last_status", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("finished_at", Instant(), nullable=True),
        sa.CheckConstraint(
            "(status = 'pending') = (next_attempt_at IS NOT NULL)",
            name=op.f("ck_deliveries_pending_has_a_time"),
        ),
        sa.CheckConstraint(
            "(status = 'running') = (lease_expires_at IS NOT NULL)",
            name=op.f("ck_deliveries_running_has_lease"),
        ),
        sa.CheckConstraint(
            "(status IN ('delivered', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name=op.f("ck_deliveries_final_has_finished_at"),
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'delivered', 'failed', 'cancelled')",
            name=op.f("ck_deliveries_status"),
        ),
        sa.ForeignKeyConstraint(
            ["endpoint_id"],
            ["webhook_endpoints.id"],
            name=op.f("fk_deliveries_endpoint_id_webhook_endpoints"),
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.id"], name=op.f("fk_deliveries_key_id_api_keys")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint(
            "event_id", "target_key", name=op.f("uq_deliveries_event_id_target_key")
        ),
    )
    with op.batch_alter_table("deliveries", schema=None) as batch_op:
        batch_op.create_index("ix_deliveries_due", ["status", "next_attempt_at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_deliveries_endpoint_id"), ["endpoint_id"], unique=False
        )
        batch_op.create_index("ix_deliveries_key_id_id", ["key_id", "id"], unique=False)
        batch_op.create_index("ix_deliveries_running_host", ["status", "target_host"], unique=False)
        batch_op.create_index(batch_op.f("ix_deliveries_subject_id"), ["subject_id"], unique=False)

    op.create_table(
        "jobs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("key_id", sa.Uuid(), nullable=False),
        sa.Column("media_id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("lease_expires_at", Instant(), nullable=True),
        sa.Column("retry_at", Instant(), nullable=True),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("adapter", sa.String(length=64), nullable=True),
        sa.Column("revision", sa.String(length=64), nullable=True),
        sa.Column("options", JsonData, nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("reference", sa.String(length=500), nullable=True),
        sa.Column("metadata", JsonData, nullable=True),
        sa.Column("language", sa.String(length=8), nullable=True),
        sa.Column("duration_ms", sa.BigInteger(), nullable=True),
        sa.Column("estimated_ms", sa.BigInteger(), nullable=True),
        sa.Column("windows_done", sa.BigInteger(), nullable=False),
        sa.Column("windows_total", sa.BigInteger(), nullable=False),
        sa.Column("audio_ms_done", sa.BigInteger(), nullable=False),
        sa.Column("audio_ms_total", sa.BigInteger(), nullable=False),
        sa.Column("prepared_at", Instant(), nullable=True),
        sa.Column("coverage", JsonData, nullable=True),
        sa.Column("warnings", JsonData, nullable=False),
        sa.Column("transcript_key", sa.Text(), nullable=True),
        sa.Column("error_code", sa.String(length=64), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("streamed_until_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("started_at", Instant(), nullable=True),
        sa.Column("finished_at", Instant(), nullable=True),
        sa.Column("delete_at", Instant(), nullable=True),
        sa.Column("batch_id", sa.Uuid(), nullable=True),
        sa.Column("may_reuse", sa.Boolean(), nullable=False),
        sa.Column("reused_from", sa.Uuid(), nullable=True),
        sa.Column("webhook_url", sa.Text(), nullable=True),
        sa.Column("webhook_secret", sa.String(length=200), nullable=True),
        sa.CheckConstraint(
            "(status = 'failed') = (error_code IS NOT NULL)",
            name=op.f("ck_jobs_failed_has_error_code"),
        ),
        sa.CheckConstraint(
            "(status IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name=op.f("ck_jobs_final_has_finished_at"),
        ),
        sa.CheckConstraint(
            "stage IN ('prepare', 'recognise', 'finish')", name=op.f("ck_jobs_stage")
        ),
        sa.CheckConstraint(
            "status <> 'completed' OR transcript_key IS NOT NULL",
            name=op.f("ck_jobs_completed_has_transcript"),
        ),
        sa.CheckConstraint(
            "status = 'running' OR lease_expires_at IS NULL",
            name=op.f("ck_jobs_lease_only_while_running"),
        ),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')",
            name=op.f("ck_jobs_status"),
        ),
        sa.CheckConstraint(
            "windows_done <= windows_total", name=op.f("ck_jobs_windows_done_le_total")
        ),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name=op.f("fk_jobs_key_id_api_keys")),
        sa.ForeignKeyConstraint(["media_id"], ["media.id"], name=op.f("fk_jobs_media_id_media")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index("ix_jobs_batch_id_status", ["batch_id", "status"], unique=False)
        batch_op.create_index("ix_jobs_delete_at", ["delete_at"], unique=False)
        batch_op.create_index(
            "ix_jobs_key_id_created_at_id", ["key_id", "created_at", "id"], unique=False
        )
        batch_op.create_index("ix_jobs_key_id_reference", ["key_id", "reference"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_media_id"), ["media_id"], unique=False)
        batch_op.create_index(
            "ix_jobs_status_stage_priority_id", ["status", "stage", "priority", "id"], unique=False
        )

    op.create_table(
        "delivery_attempts",
        sa.Column("delivery_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("started_at", Instant(), nullable=False),
        sa.Column("duration_ms", sa.BigInteger(), nullable=False),
        sa.Column("response_status", sa.BigInteger(), nullable=True),
        sa.Column("response_body", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["delivery_id"],
            ["deliveries.id"],
            name=op.f("fk_delivery_attempts_delivery_id_deliveries"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("delivery_id", "number", name=op.f("pk_delivery_attempts")),
    )
    op.create_table(
        "events",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("data", JsonData, nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_events_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_events")),
    )
    op.create_table(
        "segments",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("index", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("channel", sa.BigInteger(), nullable=True),
        sa.Column("start_ms", sa.BigInteger(), nullable=False),
        sa.Column("end_ms", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("words", JsonData, nullable=True),
        sa.Column("stats", JsonData, nullable=False),
        sa.CheckConstraint(
            "start_ms >= 0 AND end_ms >= start_ms", name=op.f("ck_segments_is_interval")
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_segments_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "index", name=op.f("pk_segments")),
    )
    op.create_table(
        "windows",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("index", sa.BigInteger(), nullable=False),
        sa.Column("channel", sa.BigInteger(), nullable=True),
        sa.Column("start_sample", sa.BigInteger(), nullable=False),
        sa.Column("num_samples", sa.BigInteger(), nullable=False),
        sa.Column("object_key", sa.Text(), nullable=False),
        sa.Column("byte_offset", sa.BigInteger(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("adapter", sa.String(length=64), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("key_id", sa.Uuid(), nullable=False),
        sa.Column("is_claimable", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("lease_expires_at", Instant(), nullable=True),
        sa.Column("started_at", Instant(), nullable=True),
        sa.Column("claimed_by", sa.String(length=200), nullable=True),
        sa.Column("hypothesis", JsonData, nullable=True),
        sa.Column("error_code", sa.String(length=64), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("finished_at", Instant(), nullable=True),
        sa.CheckConstraint(
            "(status = 'done') = (hypothesis IS NOT NULL)",
            name=op.f("ck_windows_done_has_hypothesis"),
        ),
        sa.CheckConstraint(
            "(status = 'failed') = (error_code IS NOT NULL)",
            name=op.f("ck_windows_failed_has_code"),
        ),
        sa.CheckConstraint(
            "(status = 'running') = (lease_expires_at IS NOT NULL)",
            name=op.f("ck_windows_running_has_lease"),
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'done', 'failed', 'cancelled')",
            name=op.f("ck_windows_status"),
        ),
        sa.CheckConstraint("num_samples > 0 AND num_bytes > 0", name=op.f("ck_windows_not_empty")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_windows_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_windows")),
        sa.UniqueConstraint("job_id", "index", name=op.f("uq_windows_job_id_index")),
    )
    with op.batch_alter_table("windows", schema=None) as batch_op:
        batch_op.create_index(
            "ix_windows_claim",
            ["adapter", "model", "status", "is_claimable", "priority", "key_id", "job_id", "index"],
            unique=False,
        )
        batch_op.create_index("ix_windows_lease", ["status", "lease_expires_at"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("windows", schema=None) as batch_op:
        batch_op.drop_index("ix_windows_lease")
        batch_op.drop_index("ix_windows_claim")

    op.drop_table("windows")
    op.drop_table("segments")
    op.drop_table("events")
    op.drop_table("delivery_attempts")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index("ix_jobs_status_stage_priority_id")
        batch_op.drop_index(batch_op.f("ix_jobs_media_id"))
        batch_op.drop_index("ix_jobs_key_id_reference")
        batch_op.drop_index("ix_jobs_key_id_created_at_id")
        batch_op.drop_index("ix_jobs_delete_at")
        batch_op.drop_index("ix_jobs_batch_id_status")

    op.drop_table("jobs")
    with op.batch_alter_table("deliveries", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_deliveries_subject_id"))
        batch_op.drop_index("ix_deliveries_running_host")
        batch_op.drop_index("ix_deliveries_key_id_id")
        batch_op.drop_index(batch_op.f("ix_deliveries_endpoint_id"))
        batch_op.drop_index("ix_deliveries_due")

    op.drop_table("deliveries")
    with op.batch_alter_table("webhook_endpoints", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_webhook_endpoints_key_id"))

    op.drop_table("webhook_endpoints")
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_uploads_key_id"))
        batch_op.drop_index("ix_uploads_expires_at")

    op.drop_table("uploads")
    with op.batch_alter_table("media", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_media_storage_key"))
        batch_op.drop_index(batch_op.f("ix_media_sha256"))
        batch_op.drop_index(batch_op.f("ix_media_key_id"))

    op.drop_table("media")
    with op.batch_alter_table("idempotent_answers", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_idempotent_answers_subject_id"))
        batch_op.drop_index("ix_idempotent_answers_created_at")

    op.drop_table("idempotent_answers")
    op.drop_table("api_keys")
