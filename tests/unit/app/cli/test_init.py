"""The files that `starling init` writes."""

import re
from pathlib import Path

import pytest

from mcp_gateway.configuration.servers import read_config
from starling.app.cli.init import init
from starling.app.cli.platform.settings_file import read_settings_file
from starling.app.cli.server.effects import FileEdit
from starling.core.settings.loading import load_settings


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_written_files_are_valid_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    init()

    settings = load_settings(read_settings_file(None), "starling.yaml")
    assert list(read_config(Path("mcp.json"))) == ["system_health"]
    assert settings.approval == "unsafe"
    assert "Wrote mcp.json.\nWrote starling.yaml.\n" in capsys.readouterr().out


def test_every_disabled_server_can_be_enabled_and_the_other_one_uncommented(folder: Path) -> None:
    init()
    file = folder / "mcp.json"
    for name in ("time", "filesystem", "git", "sqlite", "fetch", "memory"):
        FileEdit.enabling(file, name).write()
    text = file.read_text()
    head, remote = text.split("key from the environment.\n")

    file.write_text(head + "\n" + remote.replace("// ", ""))

    assert len(read_config(file)) == 8
    assert '"disabled": true' not in text


def test_every_setting_can_be_uncommented(folder: Path) -> None:
    init()
    file = folder / "starling.yaml"

    file.write_text(re.sub(r"^# (?=[a-z_ ]+:( |$))", "", file.read_text(), flags=re.MULTILINE))

    settings = load_settings(read_settings_file(None), "starling.yaml")
    assert settings.limits.tool_call_seconds == 30
    assert settings.providers["local"].base_url == "http://localhost:9000/v1"


def test_files_that_are_there_are_not_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mcp.json").write_text("mine")

    init(as_json=True)

    assert (folder / "mcp.json").read_text() == "mine"
    assert capsys.readouterr().out == '{"written": ["starling.yaml"], "kept": ["mcp.json"]}\n'
