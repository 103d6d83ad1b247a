"""API keys: create, list and revoke them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import Field

from starling.app.http.dependencies import Admin, ChangeActor, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel, Name
from starling.core.principal import Grant, Scope
from starling.infra.postgres.keys import ApiKey, KeySpec

type Tenant = Annotated[Name | None, Field(description="Default: yours. Others only with the local token.")]

router = APIRouter(prefix="/v1/keys", tags=["keys"], responses=refusals(403, 422))


class KeyGrant(ClosedModel):
    """What runs of a key may call: every tool of `servers`, and single `tools` by full name."""

    servers: Annotated[frozenset[Name], Field(max_length=2_000)] = frozenset()
    tools: Annotated[frozenset[Name], Field(max_length=2_000)] = frozenset()


class NewApiKey(ClosedModel):
    """The key to create. Without a `grant` its runs may call everything; without `expires_in` it never expires."""

    name: Name
    tenant: Tenant = None
    scopes: Annotated[frozenset[Scope], Field(min_length=1)] = frozenset({Scope.RUN})
    grant: KeyGrant | None = None
    expires_in: Annotated[int | None, Field(ge=1, le=10**9, description="Seconds.")] = None

    def spec(self, tenant: str) -> KeySpec:
        """Return what is to be created, of a tenant where the body names none."""
        grant = Grant(self.grant.servers, self.grant.tools) if self.grant else None
        lifetime = None if self.expires_in is None else timedelta(seconds=self.expires_in)
        return KeySpec(self.name, self.tenant or tenant, self.scopes, grant, lifetime)


class KeyQuery(ClosedModel):
    """The tenant whose keys are listed."""

    tenant: Tenant = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedApiKey(ApiKey):
    """A new key. `key` is what callers send; it is not stored and can't be shown again."""

    key: str


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """Keys, oldest first, also revoked and expired ones."""

    keys: Sequence[ApiKey]


@router.post("", status_code=201, summary="Create a key")
async def create(
    wanted: NewApiKey, caller: Admin, actor: ChangeActor, services: FromServices, response: Response
) -> CreatedApiKey:
    """Create a key of your tenant. The answer is the only one that has the key itself.

    It may do and reach at most what your own key may: its scopes, its grant, its lifetime. The local token is not
    limited, and creates keys of other tenants.
    """
    made, key = await services.storage.keys.create(caller, wanted.spec(caller.tenant), actor)
    response.headers["Cache-Control"] = "no-store"
    return CreatedApiKey(**asdict(made), key=key)


@router.get("", summary="List keys")
async def every(caller: Admin, services: FromServices, wanted: Annotated[KeyQuery, Query()]) -> ApiKeys:
    """List the keys of your tenant; with the local token those of a tenant, or of all."""
    return ApiKeys(await services.storage.keys.every(caller, wanted.tenant))


@router.delete("/{key_id}", summary="Revoke a key", responses=refusals(404))
async def revoke(key_id: UUID, caller: Admin, actor: ChangeActor, services: FromServices) -> ApiKey:
    """Revoke a key of your tenant: new requests are refused, and its open streams end within seconds."""
    return await services.storage.keys.revoke(caller, str(key_id), actor)
