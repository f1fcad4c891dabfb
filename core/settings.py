"""Every setting, read from the environment in this module alone (`SCRIPTORIUM_…`)."""

import os
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from core.errors import InvalidInput
from core.sealing import MIN_KEY_CHARS, Sealer

_PREFIX = "SCRIPTORIUM_"


def _default_data_dir() -> Path:
    """`$XDG_DATA_HOME/scriptorium`; relative values are ignored (XDG base directories 0.8)."""
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else Path("~/.local/share")) / "scriptorium"


class Settings(BaseSettings):
    """One frozen object, built at a process's edge and passed down.

    `SCRIPTORIUM_DATABASE_URL` sets `database_url`, and so on. Empty strings count as unset.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, frozen=True, extra="ignore", env_ignore_empty=True
    )

    data_dir: Path = Field(
        default_factory=_default_data_dir,
        description="Where the embedded database, files, Redis and checkpoints live.",
    )
    database_url: SecretStr | None = Field(
        default=None, description="SQLite or Postgres; default: SQLite in data_dir."
    )
    seal_keys: SecretStr | None = Field(
        default=None,
        description="Comma-separated keys that seal secrets in the database; the first seals, all "
        "open. Default: a file in data_dir where the database is embedded, else none.",
    )
    redis_url: SecretStr | None = Field(
        default=None, description="redis://…; default: a bundled server, started by `up`."
    )
    storage_url: str | None = Field(
        default=None, description="file:///… or s3://bucket/prefix; default: files in data_dir."
    )
    s3_endpoint_url: str | None = Field(default=None, description="S3 server other than AWS.")

    models: str = Field(
        default="whisper-base",
        description="Comma-separated NAME[=HUB_ID_OR_FOLDER[@REVISION]]; the first is the default.",
    )
    aligner: str | None = Field(
        default=None, description="Hub id or folder of the Qwen3 forced aligner."
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto(:\d+)?|cpu|cuda(:\d+)?|mps)$",
        description="auto (a GPU if there is one, else the CPU; `up --workers` deals all GPUs "
        "out), auto:N (the N-th GPU, round and round), cpu, cuda, cuda:N or mps.",
    )
    dtype: Literal["auto", "float32", "float16", "bfloat16", "int8"] = Field(
        default="auto",
        description="auto (the measured best for the device), float32, float16, bfloat16 or int8.",
    )
    threads: int = Field(
        default=0,
        ge=0,
        description="CPU threads of a recognising worker; 0: all cores. Where other programs keep "
        "the cores busy, take fewer: threads that wait for one another lose five times more than "
        "a missing one (or set `OMP_WAIT_POLICY=PASSIVE`, which costs a third of the speed when "
        "nothing else runs).",
    )

    auth: bool = Field(default=True, description="Off only on loopback with `up --no-auth`.")
    lease_s: float = Field(
        default=30.0, gt=0, description="How long a claim is valid without a heartbeat."
    )
    sweep_s: float = Field(default=5.0, gt=0, description="How often lost work is looked for.")
    time_slice_s: float = Field(
        default=60.0, gt=0, description="How long one wake-up recognises before it yields."
    )
    max_attempts: PositiveInt = Field(
        default=4, description="Tries of a stage or a window before the job fails."
    )
    preload: bool = Field(
        default=True,
        description="A recognising worker loads the default checkpoint when it starts.",
    )
    first_words_s: float = Field(
        default=0.0,
        ge=0,
        description="Longest that decoding a long recording waits for its first window's text, "
        "where both share a CPU; `up` sets it.",
    )
    batch_windows: PositiveInt = Field(default=16, description="Most windows in one forward pass.")
    batch_audio_s: PositiveInt = Field(
        default=480, description="Most padded audio in one forward pass."
    )

    max_upload_bytes: PositiveInt = Field(default=8 * 1024**3, description="Largest upload.")
    media_key_prefix: str = Field(
        default="inbox/",
        description="Where in storage media for `media_key` lies; every key may read it.",
    )
    max_media_s: PositiveInt = Field(default=24 * 3600, description="Longest recording.")
    decode_timeout_s: PositiveInt = Field(
        default=3600, description="Longest time one decode may take."
    )
    decode_memory_bytes: PositiveInt = Field(
        default=2 * 1024**3, description="Address space of the decoder."
    )
    min_free_bytes: int = Field(
        default=512 * 1024**2, ge=0, description="Uploads stop below this much free disk."
    )

    sync_start_s: float = Field(
        default=60.0, gt=0, description="Longest an OpenAI-style request waits for its turn."
    )
    sync_total_s: float = Field(
        default=590.0, gt=0, description="Longest an OpenAI-style request runs in all."
    )

    live_sessions: PositiveInt = Field(
        default=16, description="Most live sessions of one recognising worker."
    )
    live_connections: PositiveInt = Field(
        default=128, description="Most live sessions of one API process."
    )
    live_sessions_per_key: int = Field(
        default=16, ge=0, description="Most live sessions of a key; 0: no limit."
    )
    live_buffer_s: PositiveInt = Field(
        default=60, description="Most audio of a live session that waits to be recognised."
    )
    live_session_s: PositiveInt = Field(default=3600, description="Longest live session.")
    live_start_s: float = Field(
        default=30.0, gt=0, description="Longest a live session waits for a worker."
    )
    live_lease_s: float = Field(
        default=10.0,
        gt=0,
        description="After how long without a sign the other side of a live session is lost.",
    )

    fetch_timeout_s: PositiveInt = Field(
        default=3600, description="Longest time fetching a media_url may take, in total."
    )
    limit_requests_per_min: int = Field(
        default=0, ge=0, description="Requests of a key in a minute; 0: no limit."
    )
    limit_active_jobs: int = Field(
        default=0, ge=0, description="Jobs of a key that have not ended; 0: no limit."
    )
    limit_queued_audio_s: int = Field(
        default=0, ge=0, description="Audio of a key in jobs that have not ended; 0: no limit."
    )
    delete_after_s: int = Field(
        default=0, ge=0, description="When jobs that ask for nothing else are deleted; 0: never."
    )
    webhook_allow_private: bool = Field(
        default=False, description="Let webhooks and media_url reach private addresses."
    )
    webhook_timeout_s: float = Field(
        default=15.0, gt=0, description="Longest time one attempt at a webhook may take, in total."
    )
    webhook_retry_s: str = Field(
        default="0,5,300,1800,7200,18000,36000,50400,72000,86400",
        description="Seconds before each attempt at a webhook, counted from the one before.",
    )
    webhook_concurrency: PositiveInt = Field(
        default=64, description="Most webhook attempts in flight in one worker process."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="json, console, or auto: console on a terminal."
    )

    @field_validator("seal_keys")
    @classmethod
    def _check_seal_keys(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and any(len(key) < MIN_KEY_CHARS for key in _split_keys(value)):
            raise ValueError(f"each key has at least {MIN_KEY_CHARS} characters, random ones")
        return value

    @cached_property
    def data_path(self) -> Path:
        """`data_dir`, absolute and with `~` expanded."""
        return self.data_dir.expanduser().absolute()

    @cached_property
    def database(self) -> str:
        """The database URL, embedded by default."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.data_path / 'scriptorium.db'}"

    @cached_property
    def sealer(self) -> Sealer:
        """What seals secrets in the database.

        Raises:
            InvalidInput: The key's file is damaged: sealing under what is left of it is no seal.
        """
        if self.seal_keys is not None:
            return Sealer(_split_keys(self.seal_keys))
        if self.database_url is not None:
            return Sealer()
        try:
            key = self.seal_file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return Sealer()
        if len(key) < MIN_KEY_CHARS:  # a disk that was full, a copy that broke off
            raise InvalidInput(f"{self.seal_file} is damaged; put back the key that was in it")
        return Sealer([key])

    @property
    def seal_file(self) -> Path:
        """Where `up` keeps the key of the embedded database."""
        return self.data_path / "seal.key"

    @cached_property
    def redis(self) -> str:
        """The Redis URL; by default the socket that `up` serves under `data_dir`."""
        if self.redis_url is not None:
            return self.redis_url.get_secret_value()
        return f"unix://{self.data_path / 'redis.sock'}"

    @cached_property
    def storage(self) -> str:
        """The storage URL, embedded by default."""
        return self.storage_url or (self.data_path / "storage").as_uri()


def _split_keys(value: SecretStr) -> list[str]:
    return [key.strip() for key in value.get_secret_value().split(",") if key.strip()]


def limit_spinning() -> None:
    """Let threads of torch spin shortly, not for milliseconds, when they wait for one another.

    To be called before torch is imported, since GNU's OpenMP reads it once. 20,000 turns outlast
    the gap between two sums; a thread that spins longer takes the core from the decoder beside it.
    Measured through `up` on two cores: 1.11 times as fast as faster-whisper instead of 1.02, and
    alone no slower; 5,000 turns are 8 % slower, sleeping at once 50 %. What the operator has
    chosen stands.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")


def child_environment(settings: Settings, **overrides: str) -> dict[str, str]:
    """Return the environment of a process that is to read the very settings of `settings`.

    Everything that is no setting of ours (PATH, proxies, AWS_…, CUDA_…) is passed on; every setting
    is written out, so that a child depends neither on its working directory nor on defaults.

    Args:
        overrides: Settings by field name that are different in the child.
    """
    environment = {
        key: value for key, value in os.environ.items() if not key.upper().startswith(_PREFIX)
    }
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        if value is not None:
            environment[f"{_PREFIX}{name.upper()}"] = str(value)
    environment[f"{_PREFIX}DATA_DIR"] = str(settings.data_path)
    for name, text in overrides.items():
        environment[f"{_PREFIX}{name.upper()}"] = text
    return environment
