"""Bodies of batch requests and answers."""

from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field


class PrefixBatch(BaseModel):
    """A batch of objects that are in storage already."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"prefix": "inbox/2026/", "glob": "*.wav", "options": {"language": "en"}}]
        },
    )

    prefix: str = Field(max_length=1024)
    glob: str = Field(default="*", min_length=1, max_length=1024)
    options: dict[str, Any] = Field(default_factory=dict, description="Options of every job.")
    webhook_url: str | None = Field(default=None, description="Told when the batch is over.")
    webhook_secret: str | None = None


class ItemView(BaseModel):
    """One line of a batch."""

    index: int = Field(description="Position in the manifest, from 0; blank lines do not count.")
    custom_id: str | None
    job_id: UUID | None
    status: str
    error: dict[str, Any] | None = None


class ItemPage(BaseModel):
    """Items in the manifest's order."""

    data: list[ItemView]
    next_cursor: str | None


class BatchPage(BaseModel):
    """Batches, newest first."""

    data: list[Any]
    next_cursor: str | None


class UnusableLine(BaseModel):
    """A line that could not become a job."""

    index: int
    custom_id: str | None
    code: str
    message: str


class DryRunView(BaseModel):
    """What a manifest would do; nothing was created."""

    total: int = Field(description="Lines that are not blank.")
    usable: int
    unusable: int
    problems: list[UnusableLine] = Field(description="The first hundred unusable lines.")
    probed: int = Field(description="Usable items whose headers were read.")
    audio_s: float | None = Field(
        description="Of all usable items; extrapolated where not all were probed."
    )
    codecs: dict[str, int] = Field(description="Codecs of the probed items.")
    estimated_s: float | None = Field(
        description="How long it would take at the speed of this key's recent jobs."
    )
