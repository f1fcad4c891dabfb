import pytest

from core.errors import InvalidOption
from core.outbound import check_url, origin


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://[::1]:8000/x",
        "http://10.1.2.3/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:10.0.0.1]/",
        "http://2130706433/",
        "http://①②⑦.0.0.1/",
        "http://0.0.0.0/",
        "http://100.64.0.1/",
    ],
)
def test_a_private_address_is_refused_however_it_is_spelt(url: str) -> None:
    with pytest.raises(InvalidOption):
        check_url(url, allow_private=False, param="webhook_url")


@pytest.mark.parametrize(
    "url", ["", "nonsense", "file:///etc/passwd", "ftp://example.com/", "http://u:p@example.com/"]
)
def test_what_is_no_plain_web_address_is_refused_even_where_private_ones_are_allowed(
    url: str,
) -> None:
    with pytest.raises(InvalidOption) as caught:
        check_url(url, allow_private=True, param="webhook_url")
    assert caught.value.param == "webhook_url"


def test_private_addresses_pass_where_the_deployment_allows_them() -> None:
    url = "http://127.0.0.1:9000/hook"
    assert check_url(url, allow_private=True, param="webhook_url") == url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://Example.com/a", "https://example.com:443"),
        ("http://example.com:8080/a?b", "http://example.com:8080"),
    ],
)
def test_the_origin_is_scheme_host_and_port(url: str, expected: str) -> None:
    assert origin(url) == expected
