import os
import threading

import httpx
import pytest

from cli.client import Client, check_address, check_key, readable_name
from cli.ledger import open_ledger
from core.errors import InvalidInput, ServiceUnavailable


@pytest.mark.parametrize(
    "url", ["", "host:8000", "127.0.0.1:8000", "ftp://host", "http://", "http://[::1"]
)
def test_what_is_no_address_is_said_to_be_none(url):
    with pytest.raises(InvalidInput, match="no address of a server"):
        check_address(url)


def test_addresses_lose_their_last_slash():
    assert check_address(" https://host/behind/a/proxy/ \n") == "https://host/behind/a/proxy"


def test_keys_lose_what_copying_adds():
    assert check_key(" sk-abc_9\n") == "sk-abc_9"


@pytest.mark.parametrize("key", ["sk-ключ", "sk-a b", "sk-a\nb", "sk-…"])
def test_what_cannot_be_a_key_is_refused_without_showing_it(key):
    with pytest.raises(InvalidInput) as refused:
        check_key(key)
    assert key not in str(refused.value)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"data": 1}', b'{"data": [1]}'])
def test_something_else_that_answers_is_found_out(body):
    client = Client("http://host", None, threading.Event())
    client._http = httpx.Client(
        base_url=client.url,
        transport=httpx.MockTransport(lambda _: httpx.Response(200, content=body)),
    )
    with pytest.raises(ServiceUnavailable, match="does not answer as Scriptorium does"):
        client.get_model(None)


def test_names_that_are_no_text_become_readable(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9\n\x07.wav")
    assert readable_name(path) == "caf???.wav"


def test_a_ledger_that_cannot_be_kept_ends_the_run_with_a_reason(tmp_path):
    (tmp_path / "file").write_text("where a folder is needed")
    with (
        pytest.raises(ServiceUnavailable, match="cannot be kept"),
        open_ledger(tmp_path / "file" / "l.db"),
    ):
        pass
    (tmp_path / "l.db").write_text("This is no database." * 100)
    with pytest.raises(ServiceUnavailable, match="not a database"), open_ledger(tmp_path / "l.db"):
        pass
