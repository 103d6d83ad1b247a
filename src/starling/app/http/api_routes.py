"""The routes of the API, in the order in which `/docs` shows them, and an application for calls within the process."""

from fastapi import FastAPI

from starling.app.http import problems
from starling.app.http.app_state import AppState
from starling.app.http.authentication import PrincipalMiddleware
from starling.app.http.routes import (
    agent_run,
    agents,
    approvals,
    artifacts,
    cancellation,
    chat_completions,
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
        *(keys, kill_switches, start_page, metrics),
    )
)


def make_app_for(services: Services, principal: Principal) -> FastAPI:
    """Return the routes alone, for calls within the process: every request is that of `principal`."""
    api = FastAPI(openapi_url=None)
    api.state.api = AppState(services.storage, services)
    for router in (health.router, *ROUTERS):
        # as they are: including them would build them a second time, which takes longer than most requests
        api.router.routes.extend(router.routes)
    problems.install(api)
    api.add_middleware(PrincipalMiddleware, principal=principal)
    return api
