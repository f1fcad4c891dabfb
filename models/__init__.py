"""SQLAlchemy tables, one file a noun, with their state tables."""

from models.api_key import LOCAL_KEY_ID, ApiKey
from models.base import Base
from models.event import Event
from models.job import TRANSITIONS, Job, JobStage, JobStatus
from models.media import Media
from models.segment import Segment
from models.window import WINDOW_TRANSITIONS, Window, WindowStatus

__all__ = [
    "LOCAL_KEY_ID",
    "TRANSITIONS",
    "WINDOW_TRANSITIONS",
    "ApiKey",
    "Base",
    "Event",
    "Job",
    "JobStage",
    "JobStatus",
    "Media",
    "Segment",
    "Window",
    "WindowStatus",
]
