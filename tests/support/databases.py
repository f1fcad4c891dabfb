"""Databases with our tables in them."""

import shutil
from pathlib import Path

import models  # noqa: F401 - fills the metadata
from core.db import make_engine
from models.base import Base


def migrate(url: str) -> None:
    """Bring the database at `url` to the newest schema."""
    engine = make_engine(url)
    try:
        Base.metadata.create_all(engine)
    finally:
        engine.dispose()


def copy_sqlite(template: Path, target: Path) -> str:
    """Copy a migrated SQLite file; return the copy's URL."""
    shutil.copyfile(template, target)
    return f"sqlite:///{target}"
