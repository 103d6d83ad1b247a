"""`starling db prune`."""

from starling.infra.postgres.engine import connected
from tests.support.command_line import new_workspace

SKILLS = """
INSERT INTO skills (tenant, id, task, template, calls, outcome, tools, shape, agent_kind, agent, provenance, words,
    created_at)
SELECT 'ours', gen_random_uuid(), '', '', '[]', '', '{}', age::text, '', '', 'run', '',
    now() - make_interval(days => age)
FROM unnest(ARRAY[100, 60]) AS age"""
CLAIM = """
INSERT INTO call_claims (tenant, key, run_id, call_key, created_at)
VALUES ('ours', 'key', gen_random_uuid(), 'call', now() - interval '100 days')"""


def test_db_prune_reports_what_it_deletes(database_url: str) -> None:
    with new_workspace(DATABASE_URL=database_url) as workspace:
        nothing = workspace.starling("db", "prune", "--older-than", "30d")
        looked = workspace.json("db", "prune", "--older-than", "30d", "--dry-run", "--audit", "--tenant", "ours")

    assert nothing.returncode == 0, nothing.stderr
    assert nothing.stdout.startswith("Nothing to remove. No run ended before ")
    assert (looked["dry_run"], looked["removed"], looked["runs"]) == (True, {}, 0)
    assert looked["why_nothing"].startswith("No run ended before ")


async def test_skills_are_pruned_by_their_own_age_without_details_of_runs(database_url: str) -> None:
    async with connected(database_url) as connection:
        await connection.execute(CLAIM)  # what a run left
        await connection.execute(SKILLS)
    with new_workspace(DATABASE_URL=database_url) as workspace:
        without = workspace.json("db", "prune", "--older-than", "90d", "--dry-run")
        both = workspace.json("db", "prune", "--older-than", "90d", "--skills", "--dry-run")
        alone = workspace.json("db", "prune", "--older-than", "90d", "--skills", "--no-runs")
        again = workspace.starling("db", "prune", "--older-than", "90d", "--skills", "--no-runs")

    assert without["removed"] == {"call_claims": 1}
    assert both["removed"] == {"call_claims": 1, "skills": 1}
    assert alone["removed"] == {"skills": 1}
    assert again.stdout.startswith("Nothing to remove. None of it is from before ")


def test_db_prune_of_nothing_is_refused(database_url: str) -> None:
    with new_workspace(DATABASE_URL=database_url) as workspace:
        refused = workspace.starling("db", "prune", "--older-than", "30d", "--no-runs")

    assert refused.returncode == 2
    assert "--skills" in refused.stderr


def test_db_prune_refuses_an_invalid_age(database_url: str) -> None:
    with new_workspace(DATABASE_URL=database_url) as workspace:
        refused = workspace.starling("db", "prune", "--older-than", "30")

    assert refused.returncode == 2
    assert "'30' is not a duration" in refused.stderr
    assert "30d" in refused.stderr
