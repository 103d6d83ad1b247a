"""The routes of the API, in the order in which `/docs` shows them."""

from starling.app.http.routes import (
    agent_run,
    agents,
    approvals,
    artifacts,
    cancellation,
    feedback,
    kill_switches,
    metrics,
    prompts,
    registry,
    resume,
    run_calls,
    run_explanation,
    run_records,
    runs,
    servers,
    skills,
    start_page,
    team_builds,
    teams,
)

ROUTERS = tuple(
    module.router
    for module in (
        *(agent_run, runs, run_calls, run_explanation, run_records, artifacts),
        *(cancellation, feedback, resume, approvals),
        *(agents, teams, team_builds, skills, servers, registry, prompts),
        *(kill_switches, start_page, metrics),
    )
)
