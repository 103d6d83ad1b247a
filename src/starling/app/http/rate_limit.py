"""Rate limits in each API process: a token bucket for each key, and one for the wrong keys of each address."""

import ipaddress
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from starling.core.clock import Clock
from starling.core.errors import RateLimitedError, TooManyWrongKeysError
from starling.core.rate_limit import TokenBucket

_REMEMBERED_ADDRESSES: Final = 10_000
_NETWORK_BITS: Final = 64  # of an IPv6 address: one host may use all others


class RateLimit:
    """Allows `per_minute` requests at once for each key, and then as many a minute."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}  # by key id

    def take(self, key_id: str) -> None:
        """Count one request. Raises RateLimitedError, and counts nothing, where there have been too many."""
        now = self._clock.monotonic()
        if (bucket := self._buckets.get(key_id)) is None:
            bucket = self._buckets[key_id] = TokenBucket(self._per_minute, self._per_minute / 60, now)
        if not bucket.take(now):
            raise RateLimitedError(self._per_minute, bucket.wait(now))


class WrongKeyLimit:
    """Allows `per_minute` wrong keys at once from each address, and then as many a minute. Right keys aren't limited.

    Of the addresses that sent wrong keys the last 10,000 are remembered. All addresses of an IPv6 network (/64) count
    as one.
    """

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()  # by network

    def is_used_up(self, address: str) -> bool:
        """Return whether the next wrong key of the address would be one too many."""
        bucket = self._buckets.get(_network(address))
        return bucket is not None and bucket.wait(self._clock.monotonic()) > 0

    def count(self, address: str) -> None:
        """Count a wrong key. Raises TooManyWrongKeysError, and counts nothing, where there have been too many."""
        network, now = _network(address), self._clock.monotonic()
        bucket = self._buckets.get(network) or TokenBucket(self._per_minute, self._per_minute / 60, now)
        if not bucket.take(now):
            raise TooManyWrongKeysError(bucket.wait(now))
        self._buckets[network] = bucket
        self._buckets.move_to_end(network)
        if len(self._buckets) > _REMEMBERED_ADDRESSES:
            self._buckets.popitem(last=False)


def address_of(scope: Scope, proxies: Sequence[str]) -> str:
    """Return the address of a request's client, as the last of the trusted `proxies` (addresses, networks) saw it.

    Each proxy appends the address that it sees to `X-Forwarded-For`. What stands left of the first address that is not
    a trusted proxy could come from the client itself and is not read.
    """
    address = scope["client"][0] if scope.get("client") else ""
    if not proxies:
        return address
    networks = [ipaddress.ip_network(proxy, strict=False) for proxy in proxies]
    forwarded = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
    while forwarded and (known := _parsed(address)) and any(known in network for network in networks):
        if _parsed(seen := forwarded.pop().strip()) is None:
            break
        address = seen
    return address


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    return (parsed.ipv4_mapped or parsed) if isinstance(parsed, ipaddress.IPv6Address) else parsed


def _network(address: str) -> str:
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(parsed), _NETWORK_BITS), strict=False))
    return address if parsed is None else str(parsed)
