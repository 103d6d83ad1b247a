"""Checks of the installation by the platform itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter

from starling.app.http.app_state import FromAppState
from starling.app.http.dependencies import Admin
from starling.app.http.problems import refusals
from starling.core.diagnostics import Diagnostic
from starling.core.errors import ForbiddenError
from starling.core.principal import LOCAL_REMEDY

router = APIRouter(prefix="/v1/doctor", tags=["doctor"], responses=refusals(403, 503))


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What the checks found, in a fixed order."""

    findings: Sequence[Diagnostic]


@router.post("", summary="Check the installation")
async def check(caller: Admin, api: FromAppState) -> Diagnostics:
    """Check what `starling doctor` checks, in this process: it starts each server once and asks each model for a word.

    Only with the local token: findings name folders and addresses of the machine.
    """
    if not caller.on_host:
        raise ForbiddenError("Checks of the machine are for its own admin.", LOCAL_REMEDY)
    if api.checks is None:
        raise ForbiddenError("This process has no checks.", "`starling doctor` checks the installation.")
    return Diagnostics(await api.checks())
