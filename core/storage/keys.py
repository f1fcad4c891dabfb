"""Which object keys are accepted: those that mean the same on a file system and on S3."""

from core.errors import InvalidInput

MAX_KEY_BYTES = 1024
"""S3's limit. Source: "Creating object key names", Amazon S3 user guide."""

MAX_PART_BYTES = 255
"""NAME_MAX of the usual file systems."""


def check_key(key: str) -> str:
    """Return `key` if it is a relative path without tricks.

    Printable Unicode is fine (people bring their own buckets). Empty parts, ".", "..", and parts
    that begin with a dot are not: the first three lead elsewhere, the last is where the local
    storage keeps what is not yet an object.

    Raises:
        InvalidInput: No object can have that key.
    """
    parts = key.split("/")
    if (
        not key.isprintable()
        or "\\" in key
        or len(key.encode()) > MAX_KEY_BYTES
        or any(not part or part[0] == "." or len(part.encode()) > MAX_PART_BYTES for part in parts)
    ):
        raise InvalidInput(f"{key[:200]!r} is not a usable object key.")
    return key


def check_prefix(prefix: str) -> str:
    """Return `prefix` if it is empty or the beginning of a key (it may end within a name).

    Raises:
        InvalidInput: No object can have a key that begins like that.
    """
    folder, _, name = prefix.rpartition("/")
    if folder:
        check_key(folder)
    elif prefix.startswith("/"):
        raise InvalidInput(f"{prefix[:200]!r} is not a usable object prefix.")
    if name:
        check_key(name)
    return prefix
