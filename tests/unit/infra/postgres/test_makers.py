"""Who may change what somebody made."""

import pytest

from starling.core.errors import ForbiddenError
from starling.core.principal import DEFAULT_TENANT, Principal, Scope
from starling.infra.postgres.audit import check_maker

MAKES = frozenset({Scope.RUN, Scope.TEAMS})
KEYLESS = Principal(DEFAULT_TENANT, "", MAKES)
KEY = Principal(DEFAULT_TENANT, "k1", MAKES)


@pytest.mark.parametrize(
    ("maker", "caller"),
    [("local", KEYLESS), (None, KEYLESS), ("keyless", KEY), ("local", KEY), ("k2", KEY), (None, KEY)],
)
def test_caller_is_not_another_maker(maker: str | None, caller: Principal) -> None:
    with pytest.raises(ForbiddenError, match="was made by somebody else"):
        check_maker("agent 'x'", maker, caller)


@pytest.mark.parametrize("caller", [KEYLESS, KEY])
def test_caller_may_change_what_it_made(caller: Principal) -> None:
    check_maker("agent 'x'", caller.maker, caller)
