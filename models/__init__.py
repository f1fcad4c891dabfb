"""SQLAlchemy tables, one file a noun, with their state tables."""

from models.api_key import LOCAL_KEY_ID, ApiKey
from models.base import Base
from models.batch import BATCH_TRANSITIONS, Batch, BatchItem, BatchStatus, ItemStatus
from models.delivery import DELIVERY_TRANSITIONS, Delivery, DeliveryAttempt, DeliveryStatus
from models.event import Event
from models.idempotency import IdempotentAnswer
from models.job import TRANSITIONS, Job, JobStage, JobStatus
from models.media import Media
from models.segment import Segment
from models.upload import Upload
from models.webhook import WebhookEndpoint
from models.window import WINDOW_TRANSITIONS, Window, WindowStatus

__all__ = [
    "BATCH_TRANSITIONS",
    "DELIVERY_TRANSITIONS",
    "LOCAL_KEY_ID",
    "TRANSITIONS",
    "WINDOW_TRANSITIONS",
    "ApiKey",
    "Base",
    "Batch",
    "BatchItem",
    "BatchStatus",
    "Delivery",
    "DeliveryAttempt",
    "DeliveryStatus",
    "Event",
    "IdempotentAnswer",
    "ItemStatus",
    "Job",
    "JobStage",
    "JobStatus",
    "Media",
    "Segment",
    "Upload",
    "WebhookEndpoint",
    "Window",
    "WindowStatus",
]
