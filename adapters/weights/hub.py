"""Checkpoints from the Hugging Face hub: only the files that are loaded, and once."""

from collections.abc import Callable
from pathlib import Path

import structlog
from httpx2 import HTTPError  # what huggingface_hub is built on
from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from core import errors

log = structlog.get_logger(__name__)

Progress = Callable[[str], None]
"""Is told one line at a time what is happening, for people."""

_CONFIGURATION = ("*.json", "*.txt", "*.model", "*.jinja")
_WEIGHTS = ("model.safetensors", "model-*.safetensors")
_OLD_WEIGHTS = ("pytorch_model.bin", "pytorch_model-*.bin")


class HubUnreachable(errors.Transient):
    """No answer from the hub: the caller may have another source."""

    code = "hub_unreachable"
    title = "The model hub does not answer"


def find_cached(repo: str, revision: str | None, *, cache_dir: Path) -> Path | None:
    """Return the snapshot's folder in our cache or in the user's own, or None; asks no network."""
    for cache in (cache_dir, Path(constants.HF_HUB_CACHE)):
        try:
            folder = Path(
                snapshot_download(repo, revision=revision, cache_dir=cache, local_files_only=True)
            )
        except (LocalEntryNotFoundError, FileNotFoundError):
            continue
        except HFValidationError as exc:
            raise errors.CheckpointInvalid(f"{repo!r} is no hub id: {exc}") from exc
        if _is_complete(folder):
            return folder
    return None


def download(
    repo: str, revision: str | None, *, cache_dir: Path, progress: Progress, timeout_s: float = 10.0
) -> Path:
    """Download a snapshot into `cache_dir` and return its folder.

    Args:
        timeout_s: How long the hub may take to answer the first question.

    Raises:
        HubUnreachable: There is no way to the hub, or it is switched off (`HF_HUB_OFFLINE`).
        CheckpointInvalid: The repository or revision does not exist, or has no weights.
    """
    try:
        info = HfApi().model_info(repo, revision=revision, timeout=timeout_s)
        names = [sibling.rfilename for sibling in info.siblings or ()]
        weights = _WEIGHTS if any(name.endswith(".safetensors") for name in names) else _OLD_WEIGHTS
        progress(f"downloading {repo}@{info.sha} from the hub")
        folder = snapshot_download(
            repo,
            revision=revision,
            cache_dir=cache_dir,
            allow_patterns=[*_CONFIGURATION, *weights],
        )
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as exc:
        raise errors.CheckpointInvalid(
            f"The hub has no {repo}@{revision or 'main'}: {exc}"
        ) from exc
    except (
        HTTPError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        LocalEntryNotFoundError,
        OSError,
    ) as exc:
        raise HubUnreachable(f"{repo} cannot be had from the hub: {exc}") from exc
    if not _is_complete(Path(folder)):
        raise errors.CheckpointInvalid(f"{repo} has no config.json with weights beside it.")
    log.info("checkpoint.downloaded", repo=repo, revision=info.sha)
    return Path(folder)


def has_weights(folder: Path) -> bool:
    """Whether `folder` holds a file with weights that `transformers` reads."""
    patterns = (*_WEIGHTS, *_OLD_WEIGHTS)
    return any(next(folder.glob(pattern), None) is not None for pattern in patterns)


def _is_complete(folder: Path) -> bool:
    return (folder / "config.json").is_file() and has_weights(folder)
