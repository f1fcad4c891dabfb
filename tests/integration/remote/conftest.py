from collections.abc import Iterator

import pytest

from tests.integration.remote.source import Source, serving


@pytest.fixture
def source() -> Iterator[Source]:
    with serving() as source:
        yield source
