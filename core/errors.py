"""Every error this project raises on purpose.

* ScriptoriumError
  x InvalidInput             the caller must change the request (or the media)
    + InvalidOption          one named option is wrong; `param` names it
      - UnknownLanguage
      - UnknownModel
    + MediaError             the bytes cannot be transcribed; trying again cannot help
      - MediaEmpty
      - MediaUndecodable
      - MediaHasNoAudio
      - MediaTooLarge
      - MediaTooLong
      - MediaGone            the object vanished before a worker opened it
      - MediaUnreachable     `media_url` cannot be fetched, and trying again cannot help
  x Unauthenticated
  x Forbidden
  x NotFound
    + JobNotFound
    + MediaNotFound
  x Conflict                 the request is fine, the state is not
    + InvalidTransition
    + LeaseLost
    + TranscriptNotReady
    + IdempotencyMismatch
    + UploadIncomplete       parts of an upload are missing
    + AlreadyRunning         another process owns this data directory
  x LimitExceeded            too much, too fast; `retry_after_s` says when to come back
  x Transient                the same call may succeed later
    + StorageUnavailable
    + SourceUnavailable      the server behind a `media_url` does not answer now
    + ServiceUnavailable
      - SealBroken           a secret in the database was sealed with a key that is not there
    + DeviceOutOfMemory
    + DeviceLost             the accelerator does nothing any more until a new process begins
  x AdapterFailure           the model broke its contract for a window
    + TokenLimitReached      a hypothesis ran into its token cap and cannot be trusted
  x WorkerLost               an attempt ended without a word, too often
  x CheckpointInvalid        weights or configuration that cannot be served
  x DeviceMissing            a GPU was asked for that is not there

Errors carry no HTTP status: workers raise them too. `api.problems` maps them.
"""

from collections.abc import Mapping
from typing import ClassVar


class ScriptoriumError(Exception):
    """Base of all deliberate errors.

    Attributes:
        code: Stable machine-readable name, part of the public API and of `jobs.error_code`.
        title: One line for people, the same for every occurrence.
    """

    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Something went wrong on our side"


class InvalidInput(ScriptoriumError):
    code = "invalid_input"
    title = "The request cannot be processed"


class InvalidOption(InvalidInput):
    """One named option has a value that cannot be used.

    Attributes:
        param: The option as the caller spelt it, e.g. "language".
    """

    code = "invalid_option"
    title = "An option has a value that cannot be used"

    def __init__(self, message: str, *, param: str) -> None:
        super().__init__(message)
        self.param = param


class UnknownLanguage(InvalidOption):
    code = "unknown_language"
    title = "The language is not one this model knows"


class UnknownModel(InvalidOption):
    code = "model_not_found"
    title = "No model of that name is served here"


class MediaError(InvalidInput):
    code = "media_invalid"
    title = "The media cannot be transcribed"


class MediaEmpty(MediaError):
    code = "media_empty"
    title = "The file is empty"


class MediaUndecodable(MediaError):
    code = "media_undecodable"
    title = "The file is not audio that can be decoded"


class MediaHasNoAudio(MediaError):
    code = "media_has_no_audio"
    title = "The file has no audio"


class MediaTooLarge(MediaError):
    code = "media_too_large"
    title = "The file is larger than allowed"


class MediaTooLong(MediaError):
    code = "media_too_long"
    title = "The recording is longer than allowed"


class MediaGone(MediaError):
    code = "media_gone"
    title = "The media no longer exists in storage"


class MediaUnreachable(MediaError):
    code = "media_unreachable"
    title = "The media_url cannot be fetched"


class Unauthenticated(ScriptoriumError):
    code = "unauthenticated"
    title = "A valid API key is needed"


class Forbidden(ScriptoriumError):
    code = "forbidden"
    title = "This key may not do that"


class NotFound(ScriptoriumError):
    code = "not_found"
    title = "There is no such thing"


class JobNotFound(NotFound):
    code = "job_not_found"
    title = "There is no such job"


class MediaNotFound(NotFound):
    code = "media_not_found"
    title = "There is no such media"


class Conflict(ScriptoriumError):
    code = "conflict"
    title = "The state does not allow that"


class InvalidTransition(Conflict):
    code = "invalid_transition"
    title = "That cannot follow its present status"


class LeaseLost(Conflict):
    code = "lease_lost"
    title = "Another worker owns this attempt now"


class TranscriptNotReady(Conflict):
    code = "transcript_not_ready"
    title = "The transcript does not exist yet"


class IdempotencyMismatch(Conflict):
    code = "idempotency_mismatch"
    title = "This Idempotency-Key was used with another request"


class UploadIncomplete(Conflict):
    code = "upload_incomplete"
    title = "Parts of the upload are missing"


class AlreadyRunning(Conflict):
    code = "already_running"
    title = "Another process uses this data directory"


class LimitExceeded(ScriptoriumError):
    """A limit of a key, or of the service.

    Attributes:
        retry_after_s: Whole seconds after which the same request may pass.
        numbers: What goes into `X-RateLimit-…` headers, e.g. {"limit-requests": 60}.
    """

    code = "limit_exceeded"
    title = "A limit of this key or of the service is reached"

    def __init__(
        self, message: str, *, retry_after_s: int, numbers: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.numbers = dict(numbers or {})


class Transient(ScriptoriumError):
    code = "unavailable"
    title = "Something this needs is not available now"


class StorageUnavailable(Transient):
    code = "storage_unavailable"
    title = "The storage does not answer"


class SourceUnavailable(Transient):
    """What a `media_url` names cannot be had now.

    Attributes:
        retry_after_s: When its server wants to be asked again, in seconds, if it said so.
    """

    code = "media_source_unavailable"
    title = "The server of the media_url does not answer"

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ServiceUnavailable(Transient):
    code = "service_unavailable"
    title = "The service cannot answer in time"


class SealBroken(ServiceUnavailable):
    """Data was sealed with another secret, or changed since; a process with the key may read it."""


class DeviceOutOfMemory(Transient):
    code = "device_out_of_memory"
    title = "The accelerator has too little memory for this batch"


class DeviceLost(Transient):
    code = "device_lost"
    title = "The accelerator stopped working"


class AdapterFailure(ScriptoriumError):
    code = "adapter_failure"
    title = "The model gave an answer that cannot be used"


class TokenLimitReached(AdapterFailure):
    code = "token_limit_reached"
    title = "The model reached its token limit before the end of the window"


class WorkerLost(ScriptoriumError):
    code = "worker_lost"
    title = "Workers were lost again and again while they worked on this"


class CheckpointInvalid(ScriptoriumError):
    code = "checkpoint_invalid"
    title = "The checkpoint cannot be loaded"


class DeviceMissing(ScriptoriumError):
    code = "device_missing"
    title = "The device to compute on is not there"
