"""The slots of a worker: who takes them, and whose run is next."""

from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence

_REMEMBERED = 1_000  # tenants whose last start is known; the others count as never served


class TenantSlots:
    """Counts the slots that runs take, of each tenant and of all.

    The next run is that of the tenant with the fewest runs here; among equals, of the one served least recently.
    """

    def __init__(self) -> None:
        self._total = self._per_tenant = self._isolated = 0
        self._used_isolated = 0
        self._used: Counter[str] = Counter()
        self._served: OrderedDict[str, None] = OrderedDict()  # least recently first

    def resize(self, total: int, per_tenant: int, isolated: int) -> None:
        """Offer `total` slots, at most `per_tenant` of them to one tenant, and `isolated` to suspected runs."""
        self._total, self._per_tenant, self._isolated = total, per_tenant, isolated

    @property
    def any_free(self) -> bool:
        return self._used.total() < self._total

    def is_free(self, tenant: str) -> bool:
        """Return whether a run of this tenant may start."""
        return self.any_free and self._used[tenant] < self._per_tenant

    def take(self, tenant: str) -> None:
        """Count one more run of the tenant, even beyond its share: it was fetched already."""
        self._used[tenant] += 1
        self._served[tenant] = None
        self._served.move_to_end(tenant)
        if len(self._served) > _REMEMBERED:
            self._served.popitem(last=False)

    def release(self, tenant: str) -> None:
        """Count one run less."""
        self._used -= Counter({tenant: 1})  # Counter subtraction drops entries that reach zero

    @property
    def isolated_free(self) -> bool:
        """Whether a suspected run may start."""
        return self._used_isolated < self._isolated

    def take_isolated(self) -> bool:
        """Count one more suspected run; return False, and count nothing, where there are enough."""
        if not self.isolated_free:
            return False
        self._used_isolated += 1
        return True

    def release_isolated(self) -> None:
        """Count one suspected run less."""
        self._used_isolated -= 1

    @property
    def at_limit(self) -> Collection[str]:
        """The tenants that get no further slot now."""
        return [tenant for tenant, used in self._used.items() if used >= self._per_tenant]

    @property
    def order(self) -> Sequence[str]:
        """The tenants served so far, the one that is next first. Tenants that are missing come before all of them."""
        return sorted(self._served, key=self._used.__getitem__)  # stable: equals stay as they were served
