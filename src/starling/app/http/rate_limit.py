"""Rate limits in each API process: a token bucket for each key, and one for the wrong keys of each address."""

import ipaddress
from collections import OrderedDict
from typing import Final

from starling.core.clock import Clock
from starling.core.errors import RateLimitedError, TooManyWrongKeysError

_REMEMBERED_ADDRESSES: Final = 10_000
_NETWORK_BITS: Final = 64  # of an IPv6 address: one host may use all others


class RateLimit:
    """Allows `per_minute` requests at once for each key, and then as many a minute."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}  # key id -> tokens, and when they were counted

    def take(self, key_id: str) -> None:
        """Count one request. Raises RateLimitedError, and counts nothing, where there have been too many."""
        now = self._clock.monotonic()
        left, counted = self._left.get(key_id, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - counted) * self._per_minute / 60)
        if left < 1:
            raise RateLimitedError(self._per_minute, (1 - left) * 60 / self._per_minute)
        self._left[key_id] = left - 1, now


class WrongKeyLimit:
    """Allows `per_minute` wrong keys at once from each address, and then as many a minute.

    Of the addresses that sent wrong keys the last 10,000 are remembered. All addresses of an IPv6 network (/64) count
    as one.
    """

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when they were counted

    def check(self, address: str) -> None:
        """Raise TooManyWrongKeysError where the address may send no further wrong key now."""
        left, _ = self._tokens(_network(address))
        if left < 1:
            raise TooManyWrongKeysError((1 - left) * 60 / self._per_minute)

    def count(self, address: str) -> None:
        """Count a wrong key. Raises TooManyWrongKeysError, and counts nothing, where there have been too many."""
        self.check(address)
        network = _network(address)
        left, now = self._tokens(network)
        self._left[network] = left - 1, now
        self._left.move_to_end(network)
        if len(self._left) > _REMEMBERED_ADDRESSES:
            self._left.popitem(last=False)

    def _tokens(self, network: str) -> tuple[float, float]:
        now = self._clock.monotonic()
        left, counted = self._left.get(network, (float(self._per_minute), now))
        return min(float(self._per_minute), left + (now - counted) * self._per_minute / 60), now


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    return str(parsed.ipv4_mapped or ipaddress.ip_network((int(parsed), _NETWORK_BITS), strict=False))
