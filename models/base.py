"""Base of all tables: naming convention and column types that behave alike on both databases."""

import json
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import JSON, BigInteger, DateTime, MetaData, Text, Uuid
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator

from core.db import sealer_of

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Instant(TypeDecorator[datetime]):
    """An aware UTC datetime; SQLite has no zones, so it stores naive UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse naive values; store UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("naive datetime")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Return aware UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Sealed(TypeDecorator[str]):
    """A secret that the service must read again: sealed in the database where there is a key."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Seal."""
        return None if value is None else sealer_of(dialect).seal(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Unseal."""
        return None if value is None else sealer_of(dialect).unseal(value)


JsonData = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

SEALED_MEMBER = "(sealed)"
"""No name of a header or an option: what a caller sends is never taken for it."""


class SealedJson(TypeDecorator[dict[str, Any]]):
    """An object with secrets in it; sealed it is `{"(sealed)": text}`."""

    impl = JsonData
    cache_ok = True

    def process_bind_param(
        self, value: dict[str, Any] | None, dialect: Dialect
    ) -> dict[str, Any] | None:
        """Seal."""
        sealer = sealer_of(dialect)
        if value is None or sealer.mark is None:
            return value
        return {SEALED_MEMBER: sealer.seal(json.dumps(value))}

    def process_result_value(
        self, value: dict[str, Any] | None, dialect: Dialect
    ) -> dict[str, Any] | None:
        """Unseal."""
        if value is None or SEALED_MEMBER not in value:
            return value
        opened: dict[str, Any] = json.loads(sealer_of(dialect).unseal(value[SEALED_MEMBER]))
        return opened


class Base(DeclarativeBase):
    """Declarative base."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: Instant,
        UUID: Uuid(),
        dict[str, Any]: JsonData,
        list[Any]: JsonData,
        int: BigInteger,
    }
