"""Whether there is room for what a caller wants to bring."""

import shutil
from pathlib import Path

from core.errors import StorageUnavailable


def check_free(folder: Path, min_free_bytes: int) -> None:
    """Refuse to fill a disk to the brim: databases and queues on it would stop with it.

    Raises:
        StorageUnavailable: Less than `min_free_bytes` are free where `folder` lies.
    """
    if shutil.disk_usage(folder).free < min_free_bytes:
        raise StorageUnavailable("The disk of this service is nearly full.")
