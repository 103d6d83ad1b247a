"""The slots of a worker: each tenant gets its share, and the next run is that of the tenant with the fewest."""

from starling.infra.queue.run_jobs import TenantSlots


def slots(total: int, per_tenant: int) -> TenantSlots:
    made = TenantSlots()
    made.resize(total, per_tenant, isolated=1)
    return made


def test_tenant_at_its_limit_gets_no_slot_and_another_one_does() -> None:
    both = slots(3, 2)
    both.take("a")
    both.take("a")

    assert (both.is_free("a"), both.is_free("b"), list(both.at_limit)) == (False, True, ["a"])


def test_no_tenant_gets_a_slot_when_all_are_taken() -> None:
    both = slots(2, 2)
    both.take("a")
    both.take("b")

    assert not both.any_free
    assert not both.is_free("b")


def test_released_slot_is_free_again() -> None:
    one = slots(1, 1)
    one.take("a")
    one.release("a")

    assert one.is_free("a")
    assert not one.at_limit


def test_tenant_with_the_fewest_runs_is_next() -> None:
    three = slots(9, 9)
    for tenant in "aaabccb":
        three.take(tenant)
    three.release("b")

    assert three.order == ["b", "c", "a"]


def test_of_tenants_with_equally_many_runs_the_one_served_least_recently_is_next() -> None:
    both = slots(1, 1)
    for tenant in "aba":
        both.take(tenant)
        both.release(tenant)

    assert both.order == ["b", "a"]
