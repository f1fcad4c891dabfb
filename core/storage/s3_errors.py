"""What botocore raises, in this project's words."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from core.errors import MediaGone, StorageUnavailable


def error_code(exc: ClientError) -> str:
    """Return S3's name of the error; a HEAD has no body, so "404" and the like stand for it."""
    error: dict[str, Any] = dict(exc.response.get("Error", {}))
    return str(error.get("Code", ""))


@contextmanager
def translated(key: str | None = None) -> Iterator[None]:
    """Raise `MediaGone` if S3 knows no object `key`, `StorageUnavailable` for all other failures.

    A missing bucket or a refused key pair is the operator's to mend: the job can wait for that.
    """
    try:
        yield
    except ClientError as exc:
        if key is not None and error_code(exc) in {"NoSuchKey", "404"}:
            raise MediaGone(f"There is no object {key}.") from exc
        raise StorageUnavailable(f"The S3 server refused: {exc}") from exc
    except (BotoCoreError, Boto3Error, HTTPError, OSError) as exc:
        raise StorageUnavailable(f"The S3 server cannot be used: {exc}") from exc
