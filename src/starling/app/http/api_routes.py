"""The routes of the API, in the order in which `/docs` shows them, and an application for calls within the process."""

from typing import Any

from fastapi import FastAPI

from starling.app.http import problems
from starling.app.http.app_state import AppState
from starling.app.http.authentication import PrincipalMiddleware
from starling.app.http.openapi import describe
from starling.app.http.route_loading import append_routes
from starling.app.http.routes import (
    agent_run,
    agents,
    approvals,
    artifacts,
    audit,
    cancellation,
    chat_completions,
    console,
    doctor,
    feedback,
    governance,
    health,
    keys,
    kill_switches,
    metrics,
    models,
    prompts,
    registry,
    responses,
    run_calls,
    run_explanation,
    run_records,
    runs,
    servers,
    skills,
    start_page,
    team_builds,
    teams,
    threads,
    tools,
)
from starling.app.services import Services
from starling.core.principal import Principal

ROUTERS = tuple(
    module.router
    for module in (
        *(agent_run, runs, run_calls, run_explanation, run_records, artifacts, threads),
        *(cancellation, feedback, approvals),
        *(agents, tools, teams, team_builds, skills, servers, registry, governance, prompts),
        *(models, chat_completions, responses),
        *(keys, kill_switches, audit, doctor, console, start_page, metrics),
    )
)


def described() -> dict[str, Any]:
    """Return the description of all routes, as `/openapi.json` has it where a key is needed."""
    api = FastAPI(title="Starling")
    for router in (*ROUTERS, health.router):
        append_routes(api, router)
    describe(api, keyless=False)
    return api.openapi()


def make_app_for(services: Services, principal: Principal) -> FastAPI:
    """Return the routes alone, for calls within the process: every request is that of `principal`."""
    api = FastAPI(openapi_url=None)
    api.state.api = AppState(services.storage, services)
    for router in (health.router, *ROUTERS):
        append_routes(api, router)
    problems.install(api)
    api.add_middleware(PrincipalMiddleware, principal=principal)
    return api
