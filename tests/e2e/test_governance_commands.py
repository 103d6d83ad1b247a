"""`starling governance`, and the table in `starling registry` and `starling run show`."""

from pathlib import Path

from tests.support.command_line import CliWorkspace, server_file


def settings(workspace: CliWorkspace, text: str) -> Path:
    file = workspace.folder / "bounds.yaml"
    file.write_text(f"governance:\n{text}")
    return file


def test_table_is_checked_planned_put_into_force_and_shown(workspace: CliWorkspace) -> None:
    servers = server_file(workspace)
    workspace.json("registry", "reload", "--mcp-config", servers)
    file = settings(workspace, "  tenants:\n    acme:\n      modes: {MODERATE: {effects: [read], seconds: 60}}\n")

    check = workspace.starling("governance", "check", file)
    plan = workspace.starling("--settings", file, "registry", "plan")
    reload = workspace.starling("--settings", file, "registry", "reload")
    again = workspace.starling("governance", "check", file)
    shown = workspace.starling("governance", "show", "--tenant", "acme").stdout
    workspace.starling("registry", "reload", "--mcp-config", servers)  # settings without a table

    assert (check.returncode, plan.returncode, reload.returncode, again.returncode) == (10, 10, 0, 0)
    assert "~ tenants.acme.modes.MODERATE.seconds: – → 60" in check.stdout
    assert "+ governance tenants.acme.modes.MODERATE.effects" in plan.stdout
    assert "Nothing to change: epoch 2 has the same table." in again.stdout
    assert "Epoch 2 allows for the tenant acme" in shown
    assert "MODERATE/CHAT\teffects read · iteration_factor 1 · temperature 0.3 · seconds 60" in shown
    assert workspace.json("governance", "show")["table"]["tenants"].keys() == {"acme"}
    assert "governance tenants.acme.modes.MODERATE.effects" in workspace.starling("registry", "list").stdout


def test_bound_of_a_tenant_without_effect_and_a_missing_section_are_told(workspace: CliWorkspace) -> None:
    workspace.json("registry", "reload", "--mcp-config", server_file(workspace))
    wide = settings(workspace, "  tenants:\n    acme:\n      modes:\n        CONSERVATIVE: {effects: [unsafe, read]}\n")
    empty = workspace.folder / "empty.yaml"
    empty.write_text("port: 0\n")

    told, missing = (workspace.starling("governance", "check", file) for file in (wide, empty))

    assert "! tenants.acme.modes.CONSERVATIVE.effects allows more" in told.stdout
    assert (missing.returncode, "no section `governance`" in missing.stderr) == (2, True)
