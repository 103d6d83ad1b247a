"""Which addresses a server that came over HTTP may have: public ones, and those of the setting `allowed_addresses`."""

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Self
from urllib.parse import urlsplit

type Address = IPv4Address | IPv6Address
type Network = IPv4Network | IPv6Network

REMEDY: Final = (
    "Use `starling server add` on the platform's machine, or list the host in STARLING_ALLOWED_ADDRESSES there."
)
_UNREADABLE: Final = re.compile(r"[\\\x00-\x20\x7f]")  # what parsers of addresses read in different ways
_UNICAST: Final = IPv6Network("2000::/3")  # the only part of IPv6 that is assigned to public addresses
_NAT64: Final = IPv6Network("64:ff9b::/96")
# Not public, though `is_global` of some versions of Python says so, or public and answered by a machine's own host.
_NOT_PUBLIC: Final = (
    IPv6Network("3fff::/20"),  # documentation
    IPv4Network("192.0.0.0/24"),  # protocols, and metadata of Oracle's cloud
    IPv4Network("192.88.99.0/24"),  # relays of 6to4
    IPv4Network("168.63.129.16/32"),  # metadata of Azure
)


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Decides on addresses of servers that came over HTTP; `hosts` and `networks` are allowed in any case."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, allowed: Iterable[str]) -> Self:
        """Return the rules with the hosts and networks of a list."""
        found = {text: _network(text) for text in allowed}
        hosts = frozenset(_name(text) for text, network in found.items() if network is None)
        return cls(hosts, tuple(network for network in found.values() if network is not None))

    def url_fault(self, url: str) -> str:
        """Return why an address may not be connected to, as far as it says so itself; empty where it doesn't."""
        try:
            parts = urlsplit(url)
            scheme, host, _ = parts.scheme, parts.hostname or "", parts.port
        except ValueError as error:
            return f"its address can't be read ({error})"
        if _UNREADABLE.search(url) or "%" in host:
            return "its address has a character that a host can't have"
        if scheme not in ("http", "https") or not host:
            return "its address has to begin with http:// or https:// and a host"
        if "@" in parts.netloc:
            return "its address has a user name or a password, which belong into `headers`"
        try:  # also the short, octal and hexadecimal forms of IPv4 that the system's resolver takes
            numeric = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError, ValueError):
            return ""  # a name, which is checked when it is connected to
        return self.fault(host, [str(found[4][0]) for found in numeric])

    def fault(self, host: str, addresses: Iterable[str]) -> str:
        """Return why a host with these addresses may not be connected to; empty where it may."""
        if _name(host) in self.hosts:
            return ""
        for text in addresses:
            address = ip_address(text)
            if not _is_public(address) and not any(_is_in(address, network) for network in self.networks):
                if text == host:
                    return f"its address {host} is not a public one"
                return f"{host} leads to an address that is not public"
        return ""


PUBLIC_ONLY: Final = AddressRules()


def _is_public(address: Address) -> bool:
    if inner := _embedded(address):
        return _is_public(inner)
    if any(_is_in(address, network) for network in _NOT_PUBLIC):
        return False
    return address.is_global and not address.is_multicast and (address.version == 4 or address in _UNICAST)


def _embedded(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that packets to an IPv6 address are sent on to."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def _is_in(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network


def _network(text: str) -> Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def _name(host: str) -> str:
    return host.lower().rstrip(".")
