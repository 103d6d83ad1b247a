"""`starling db prune`."""

from tests.support.command_line import new_workspace


def test_db_prune_reports_what_it_deletes(database_url: str) -> None:
    with new_workspace(DATABASE_URL=database_url) as workspace:
        nothing = workspace.starling("db", "prune", "--older-than", "30d")
        looked = workspace.json("db", "prune", "--older-than", "30d", "--dry-run", "--audit", "--tenant", "ours")

    assert nothing.returncode == 0, nothing.stderr
    assert nothing.stdout.startswith("Nothing to remove. No run ended before ")
    assert (looked["dry_run"], looked["removed"], looked["runs"]) == (True, {}, 0)
    assert looked["why_nothing"].startswith("No run ended before ")


def test_db_prune_refuses_an_invalid_age(database_url: str) -> None:
    with new_workspace(DATABASE_URL=database_url) as workspace:
        refused = workspace.starling("db", "prune", "--older-than", "30")

    assert refused.returncode == 2
    assert "'30' is not a duration" in refused.stderr
    assert "30d" in refused.stderr
