"""Brings a database to the newest schema; the same call for `migrate`, `up` and tests."""

from datetime import UTC, datetime
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from core.db import make_engine, schema_transaction
from core.errors import SealBroken
from core.sealing import Sealer
from core.settings import Settings
from migrations.forget import Loss, forget_secrets
from migrations.seals import seal_rows

HEAD = "head"


def migrate(settings: Settings, revision: str = HEAD) -> None:
    """Upgrade the database of `settings`, alone: whoever else migrates now waits its turn.

    Nothing happens if it is there already. All of it is one transaction.

    Raises:
        SealBroken: Something in it was sealed with a key that is not there.
    """
    if settings.database.startswith("sqlite"):
        settings.data_path.mkdir(parents=True, exist_ok=True)
    try:
        migrate_url(settings.database, revision, sealer=settings.sealer)
    except SealBroken as exc:
        raise SealBroken(
            f"{exc}. Put the key back; if it is lost for good, `scriptorium migrate "
            "--forget-secrets` gives up what it sealed"
        ) from exc


def migrate_url(url: str, revision: str = HEAD, *, sealer: Sealer | None = None) -> None:
    """Upgrade the database at `url`; what another key sealed, or none, is sealed anew."""
    engine = make_engine(url, sealer=sealer)
    try:
        with schema_transaction(engine) as connection:
            command.upgrade(make_config(connection), revision)
            if revision == HEAD:
                seal_rows(connection)
    finally:
        engine.dispose()


def migrate_without(url: str, *, sealer: Sealer) -> list[Loss]:
    """Upgrade the database at `url` and give up what none of the keys opens; say what that was."""
    engine = make_engine(url, sealer=sealer)
    try:
        with schema_transaction(engine) as connection:
            command.upgrade(make_config(connection), HEAD)
            losses = forget_secrets(connection, now=datetime.now(UTC))
            seal_rows(connection)
    finally:
        engine.dispose()
    return losses


def make_config(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration, without any file.

    Args:
        connection: In a transaction of its own; None connects to what the settings name.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config
