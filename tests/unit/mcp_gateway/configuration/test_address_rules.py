"""Which addresses a server that came over HTTP may have."""

import pytest
from pydantic import ValidationError

from mcp_gateway.configuration.address_rules import AddressRules
from mcp_gateway.configuration.servers import server_of
from mcp_gateway.configuration.stdio_over_http import StdioRules
from starling.core.errors import ForbiddenError
from starling.core.settings.schema import Settings

NOT_PUBLIC = {
    "loopback": ["127.0.0.1", "127.8.9.1", "::1"],
    "unspecified": ["0.0.0.0", "0.1.2.3", "::"],  # noqa: S104 - refused
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fdff::1", "fec0::1"],
    "link-local": ["169.254.1.1", "fe80::1", "fe80::1%eth0"],
    "metadata": ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"],
    "CGNAT": ["100.64.0.1", "100.127.255.255"],
    "multicast": ["224.0.0.1", "239.255.255.250", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "2001:db8::1", "3fff::1", "100::1"],
    "mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1"],
    "NAT64": ["64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::7f00:1", "64:ff9b:1::808:808"],
    "6to4": ["2002:7f00:1::", "2002:a00:1::1"],
    "Teredo": ["2001:0:808:808::80ff:fffe", "2001:0:4136:e378:8000:63bf:3fff:fdd2"],
}
PUBLIC = ["1.1.1.1", "100.63.255.255", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]


@pytest.mark.parametrize("kind", NOT_PUBLIC)
def test_address_that_is_not_public_is_refused(kind: str) -> None:
    rules = AddressRules()

    assert [address for address in NOT_PUBLIC[kind] if not rules.fault("shop.example", [address])] == []
    assert [address for address in NOT_PUBLIC[kind] if not rules.fault("shop.example", ["1.1.1.1", address])] == []


@pytest.mark.parametrize("address", PUBLIC)
def test_public_address_is_accepted(address: str) -> None:
    assert AddressRules().fault("shop.example", [address]) == ""


def test_hosts_and_networks_of_the_setting_are_accepted_and_no_others() -> None:
    rules = AddressRules.of(["Shop.internal.", "10.1.0.0/16", "fd00:1::/32", "192.168.0.7"])

    def refused(host: str, address: str) -> bool:
        return bool(rules.fault(host, [address]))

    assert not refused("shop.internal", "10.9.9.9")
    assert not refused("SHOP.INTERNAL.", "127.0.0.1")
    assert not refused("x", "10.1.255.1")
    assert not refused("x", "fd00:1::5")
    assert not refused("x", "192.168.0.7")
    assert refused("evil.shop.internal", "10.9.9.9")
    assert refused("x", "10.2.0.1")
    assert refused("x", "192.168.0.8")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1/", "not a public one"),
        ("http://0x7f000001/", "0x7f000001 leads to an address that is not public"),
        ("https://2130706433/", "2130706433 leads to an address that is not public"),
        ("http://[::1]:8000/mcp", "not a public one"),
        ("https://me:password@shop.example/", "a user name or a password"),
        ("ftp://shop.example/", "http:// or https://"),
        ("http://", "http:// or https://"),
        ("http://shop.example\\@127.0.0.1/", "a character"),
        ("http://shop.example:port/", "can't be read"),
        ("https://shop.example/mcp", ""),
        ("https://1.1.1.1:8443/mcp", ""),
    ],
)
def test_url_is_refused_for_what_it_says_itself(url: str, reason: str) -> None:
    fault = AddressRules().url_fault(url)

    assert reason in fault
    assert bool(reason) == bool(fault)


def test_address_in_a_document_over_http_is_refused_at_once_unless_it_has_a_variable() -> None:
    private, later = server_of({"url": "http://10.0.0.1/mcp"}), server_of({"url": "http://${HOST}/mcp"})

    StdioRules().check({"later": later}, {})
    StdioRules(addresses=AddressRules.of(["10.0.0.0/8"])).check({"private": private}, {})
    with pytest.raises(ForbiddenError, match=r"'private' can't be added .* 10\.0\.0\.1 is not a public one"):
        StdioRules().check({"private": private}, {})


def test_setting_takes_hosts_and_networks_and_refuses_others() -> None:
    settings = Settings.model_validate({"allowed_addresses": "shop.internal, 10.0.0.0/8,fd00::/8"})

    assert settings.allowed_addresses == ("shop.internal", "10.0.0.0/8", "fd00::/8")
    for wrong in ("http://shop.internal", "10.0.0.0/99", "a b"):
        with pytest.raises(ValidationError, match="allowed_addresses"):
            Settings.model_validate({"allowed_addresses": wrong})
