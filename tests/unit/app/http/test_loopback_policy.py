"""Which requests without a key are accepted."""

from typing import Any

import pytest

from starling.app.http.loopback_policy import keyless_refusal


def request(headers: dict[str, str], *, client: str = "127.0.0.1", version: str = "1.1") -> dict[str, Any]:
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "client": (client, 40_000), "http_version": version, "headers": encoded}


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:8000"},
        {"Host": "localhost"},
        {"Host": "LOCALHOST:8000"},
        {"Host": "[::1]:8000"},
        {"Host": "localhost:8000", "Origin": "http://localhost:8000"},
        {"Host": "localhost", "Origin": "http://localhost:80"},
        {"Host": "[::1]:8000", "Origin": "http://[::1]:8000"},
    ],
)
def test_request_of_this_machine_is_accepted(headers: dict[str, str]) -> None:
    assert keyless_refusal(request(headers)) == ""


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "host ''"),
        ({"Host": "starling.example"}, "host 'starling.example'"),
        ({"Host": "127.0.0.1/health?"}, "host"),
        ({"Host": "127.0.0.1#.shop.example"}, "host"),
        ({"Host": "127.0.0.1?.shop.example"}, "host"),
        ({"Host": "shop.example@127.0.0.1"}, "host"),
        ({"Host": "127.0.0.1:8000:1"}, "host"),
        ({"Host": "127.0.0.1 "}, "host"),
        ({"Host": "127.0.0.1.shop.example"}, "host"),
        ({"Host": "localhost:8000", "Origin": "http://localhost:1"}, "web page"),
        ({"Host": "localhost:8000", "Origin": "http://127.0.0.1:8000"}, "web page"),
        ({"Host": "localhost:8000", "Origin": "https://localhost:8000"}, "web page"),
        ({"Host": "localhost:8000", "Origin": "http://localhost"}, "web page"),
        ({"Host": "localhost:8000", "Origin": "https://shop.example"}, "web page"),
        ({"Host": "localhost:8000", "Origin": "null"}, "web page"),
        ({"Host": "localhost:8000", "Via": "1.1 proxy"}, "proxy"),
        ({"Host": "localhost:8000", "X-Forwarded-For": "198.51.100.1"}, "proxy"),
    ],
)
def test_request_that_may_come_from_elsewhere_is_refused_with_the_reason(headers: dict[str, str], reason: str) -> None:
    assert reason in keyless_refusal(request(headers))


@pytest.mark.parametrize(
    ("changed", "reason"), [({"client": "203.0.113.7"}, "another machine"), ({"version": "1.0"}, "HTTP/1.0")]
)
def test_request_of_another_machine_or_a_proxy_is_refused_with_the_reason(changed: dict[str, str], reason: str) -> None:
    assert reason in keyless_refusal(request({"Host": "localhost"}, **changed))
