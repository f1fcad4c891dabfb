"""The page, in a real browser."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.api.browser import Browser, browser, is_installed
from tests.integration.api.conftest import MEDIA, SPEECH
from tests.integration.api.fakes import HELLO, FakeWorker
from tests.integration.api.servers import Server
from tests.support.processes import wait_for

# A browser is not something pip installs: left out where there is none, but a failure in CI.
pytestmark = pytest.mark.skipif(
    not is_installed() and "CI" not in os.environ, reason="no chromedriver on this machine"
)


@pytest.fixture
def page(server: Server, tmp_path: Path) -> Iterator[Browser]:
    with browser(tmp_path / "downloads") as window:
        window.open(server.url)
        window.type("#key", server.key)
        window.run("document.getElementById('key').dispatchEvent(new Event('change'))")
        wait_for(lambda: window.text("#model") == "whisper-base", what="models are listed")
        yield window


def segments(page: Browser) -> list[str]:
    return [line for line in page.text("#segments").splitlines() if line]


def test_a_file_is_transcribed_before_the_users_eyes(
    page: Browser, worker: FakeWorker, tmp_path: Path
):
    worker.gate.clear()
    page.type("#file", str(SPEECH))
    page.click("#send")
    wait_for(lambda: "Hello there." in page.text("#segments"), what="the first segment shows")
    assert "How are you?" not in page.text("#segments")
    worker.gate.set()
    wait_for(lambda: page.text("#status") == "Done.", what="the page says so")
    assert [segment.text in " ".join(segments(page)) for segment in HELLO] == [True, True]
    page.click("[data-format=srt]")
    target = tmp_path / "downloads" / "wav_mulaw_8k.srt"
    wait_for(target.exists, what="the download arrives")
    assert target.read_text().startswith("1\n00:00:00,000 --> 00:00:01,000\nHello there.\n")


def test_what_cannot_be_transcribed_is_said_in_words(page: Browser):
    page.type("#file", str(MEDIA / "text_renamed.mp3"))
    page.click("#send")
    wait_for(lambda: "Sending" not in page.text("#status") and page.text("#status"), what="a word")
    assert page.run("return document.getElementById('send').disabled") is False
    assert page.text("#segments") == ""


def test_cancel_cancels(page: Browser, worker: FakeWorker):
    worker.gate.clear()
    page.type("#file", str(SPEECH))
    page.click("#send")
    wait_for(lambda: "Hello there." in page.text("#segments"), what="the job runs")
    page.click("#cancel")
    wait_for(lambda: page.text("#status") == "Cancelled.", what="the page says so")


def test_the_key_stays_in_this_tab(page: Browser, server: Server):
    kept = page.run("return [sessionStorage.length, localStorage.length, document.cookie]")
    assert kept == [1, 0, ""]
    assert server.key not in page.run("return document.documentElement.outerHTML")
