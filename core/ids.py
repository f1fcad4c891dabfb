from uuid import UUID

from uuid_utils.compat import uuid7


def new_id() -> UUID:
    """Return a UUIDv7: unique, and ordered by time, so that it makes a good primary key."""
    return uuid7()
