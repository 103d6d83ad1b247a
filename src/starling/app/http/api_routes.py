"""The routes of the API, in the order in which `/docs` shows them."""

from starling.app.http.routes import (
    agent_run,
    agents,
    approvals,
    artifacts,
    cancellation,
    kill_switches,
    metrics,
    registry,
    resume,
    run_calls,
    run_document,
    runs,
    servers,
    skills,
    start_page,
    team_builds,
    team_history,
    teams,
)

ROUTERS = tuple(
    module.router
    for module in (
        *(agent_run, runs, run_calls, run_document, artifacts, cancellation, resume, approvals),
        *(agents, teams, team_builds, team_history, skills, servers, registry, kill_switches, start_page, metrics),
    )
)
