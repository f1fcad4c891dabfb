"""Bodies of requests and answers that are the API's own; a job's is `lifecycle.views.JobView`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lifecycle.views import JobView


class ProblemView(BaseModel):
    """RFC 9457 problem details."""

    type: str = Field(examples=["urn:scriptorium:problem:media_empty"])
    title: str
    status: int
    detail: str
    instance: str
    code: str = Field(description="Stable name of the problem.", examples=["media_empty"])
    request_id: str | None
    param: str | None = Field(default=None, description="The option or field that is wrong.")
    errors: list[dict[str, str]] | None = None


class OpenAiErrorBody(BaseModel):
    """What OpenAI's clients read."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAiError(BaseModel):
    """OpenAI's error envelope."""

    error: OpenAiErrorBody


class JobList(BaseModel):
    """A page of jobs, newest first."""

    data: list[JobView]
    next_cursor: str | None = Field(description="Pass as `cursor` to go on; null on the last page.")


class CreateJob(BaseModel):
    """JSON body of `POST /v1/jobs`; documentation of what `api.submissions` checks by name."""

    model_config = ConfigDict(extra="forbid")

    media_key: str | None = Field(
        default=None, description="Key of an object in the service's storage."
    )
    media_url: str | None = Field(default=None, description="Fetched by a worker.")
    media_headers: dict[str, str] | None = Field(
        default=None, description="Sent when `media_url` is fetched; kept secret."
    )
    upload_id: str | None = Field(default=None, description="Of `POST /v1/uploads`.")
    model: str | None = Field(default=None, description="A served model; default: the first.")
    language: str | None = Field(default=None, description="Code, `auto` or `multi`.")
    prompt: str | None = None
    task: Literal["transcribe", "translate"] | None = None
    timestamps: Literal["segment", "word", "none"] | None = None
    channels: Literal["mix", "split"] | None = None
    vad: bool | None = None
    temperature: float | None = Field(default=None, ge=0, le=1)
    on_window_failure: Literal["fail", "gap"] | None = None
    priority: Literal["interactive", "standard", "bulk"] | None = None
    webhook_url: str | None = None
    webhook_secret: str | None = Field(default=None, description="`whsec_…`")
    reference: str | None = Field(default=None, max_length=500)
    metadata: dict[str, Any] | None = None
    stream: bool | None = None
    logprobs: bool | None = None
    reuse: bool | None = None
    delete_after_s: int | None = Field(default=None, ge=1)


class DependencyView(BaseModel):
    """Whether one thing the service needs answers."""

    ok: bool
    error: str | None = None


class HealthView(BaseModel):
    """Readiness, and what is down."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, DependencyView]


class ModelView(BaseModel):
    """A served model, as OpenAI lists them."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


class ModelList(BaseModel):
    """All served models, the default first."""

    object: Literal["list"] = "list"
    data: list[ModelView]
