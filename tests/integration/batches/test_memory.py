import tracemalloc

import httpx

from api.app import create_app
from tests.integration.api.conftest import make_key
from tests.integration.api.servers import serving

NUM_LINES = 100_000


def test_a_manifest_of_a_hundred_thousand_lines_is_never_in_memory(stack):
    """13 MB arrive; what is held of them at once is a few blocks."""
    line = (
        b'{"custom_id": "%06d", "media_key": "inbox/archive/recording-%06d.wav", "reference": "x"}'
    )

    def body():
        for number in range(0, NUM_LINES, 100):
            lines = [line % (n, n) + b" " * 40 for n in range(number, number + 100)]
            yield b"\n".join(lines) + b"\n"

    headers = {
        "authorization": f"Bearer {make_key(stack.context)}",
        "content-type": "application/x-ndjson",
    }
    with serving(create_app(stack.context)) as url:
        httpx.get(f"{url}/v1/batches", headers=headers)  # what is imported and cached on first use
        tracemalloc.start()
        answer = httpx.post(f"{url}/v1/batches", content=body(), headers=headers, timeout=120)
        _now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert answer.status_code == 202, answer.text
    assert answer.json()["counts"]["total"] == NUM_LINES
    manifest = next(stack.context.storage.list("batches/"))
    assert manifest.size_bytes > 12_000_000
    assert peak < 6 << 20
