"""Headless Chromium over the WebDriver protocol (https://www.w3.org/TR/webdriver2/)."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.processes import free_port, is_listening, wait_for

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def is_installed() -> bool:
    return shutil.which("chromedriver") is not None


class Browser:
    """One window."""

    def __init__(self, client: httpx.Client, session: str) -> None:
        self._client = client
        self._session = session

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self._client.post(f"/session/{self._session}{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["value"]

    def open(self, url: str) -> None:
        self._post("/url", {"url": url})

    def run(self, script: str) -> Any:
        """Run a function body in the page and return its value."""
        return self._post("/execute/sync", {"script": script, "args": []})

    def type(self, selector: str, text: str) -> None:
        self._post(f"/element/{self._find(selector)}/value", {"text": text})

    def click(self, selector: str) -> None:
        self._post(f"/element/{self._find(selector)}/click", {})

    def text(self, selector: str) -> str:
        return str(self.run(f"return document.querySelector({selector!r}).innerText"))

    def _find(self, selector: str) -> str:
        found = self._post("/element", {"using": "css selector", "value": selector})
        return str(found[ELEMENT])


@contextmanager
def browser(downloads: Path) -> Iterator[Browser]:
    port = free_port()
    driver = subprocess.Popen(
        [str(shutil.which("chromedriver")), f"--port={port}"], stdout=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: is_listening(port), what="chromedriver answers")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            options = {"args": FLAGS, "prefs": {"download.default_directory": str(downloads)}}
            capabilities = {"alwaysMatch": {"goog:chromeOptions": options}}
            answer = client.post("/session", json={"capabilities": capabilities}).json()["value"]
            try:
                yield Browser(client, answer["sessionId"])
            finally:
                client.delete(f"/session/{answer['sessionId']}")
    finally:
        driver.terminate()
        driver.wait(timeout=30)
