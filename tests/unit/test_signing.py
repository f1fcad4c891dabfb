import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from core.errors import InvalidOption
from core.signing import check_secret, new_secret, signed_headers

FILE = json.loads(
    (Path(__file__).parent.parent / "data" / "webhook_vectors.json").read_text(encoding="utf-8")
)
VECTORS = FILE["vectors"]


def sign(vector: dict[str, str], *secrets: str) -> dict[str, str]:
    return signed_headers(
        secrets,
        event_id=vector["webhook-id"],
        body=vector["body_utf8"].encode(),
        at=datetime.fromtimestamp(int(vector["webhook-timestamp"]), UTC),
    )


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_signatures_equal_the_vectors(vector: dict[str, str]) -> None:
    headers = sign(vector, vector["secret"])
    assert headers == {name: vector[name] for name in headers}


def test_a_local_time_is_signed_as_the_same_instant() -> None:
    vector = VECTORS[0]
    at = datetime.fromtimestamp(int(vector["webhook-timestamp"]), timezone(timedelta(hours=9)))
    headers = signed_headers(
        [vector["secret"]],
        event_id=vector["webhook-id"],
        body=vector["body_utf8"].encode(),
        at=at,
    )
    assert headers["webhook-signature"] == vector["webhook-signature"]


def test_during_rotation_both_secrets_sign() -> None:
    rotation = FILE["rotation"]
    headers = sign(rotation, *rotation["secrets"])
    assert headers["webhook-signature"] == rotation["webhook-signature"]


@pytest.mark.parametrize("number", [0, 1])
def test_either_secret_verifies_what_was_signed_during_rotation(number: int) -> None:
    secrets = [new_secret(), new_secret()]
    headers = signed_headers(secrets, event_id="evt_1", body=b"{}", at=datetime.now(UTC))
    assert Webhook(secrets[number]).verify(b"{}", headers) == {}


def test_an_old_timestamp_is_rejected() -> None:
    secret = new_secret()
    at = datetime.now(UTC) - timedelta(minutes=6)
    headers = signed_headers([secret], event_id="evt_1", body=b"{}", at=at)
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(secret).verify(b"{}", headers)


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", "whsec_c2hvcnQ=", "c2hvcnQ=", "whsec_***", "whsec_é", "whsec_" + "QUFB" * 40],
)
def test_a_malformed_secret_is_refused_by_name(secret: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        check_secret(secret, param="webhook_secret")
    assert caught.value.param == "webhook_secret"
    assert len(secret) < 8 or secret not in str(caught.value)


def test_a_fresh_secret_is_well_formed() -> None:
    secret = new_secret()
    assert check_secret(secret, param="secret") == secret
