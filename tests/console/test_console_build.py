"""Building the console: what is said where the packages of npm can't be had."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.documented_commands import ROOT
from tests.support.gateway_harness import free_port


@pytest.mark.console
def test_demo_goes_on_and_says_so_where_the_console_cannot_be_built(tmp_path: Path) -> None:
    """The registry is a closed port; environments and the demo itself are replaced by what does nothing."""
    checkout, home = tmp_path / "checkout", tmp_path / "home"
    for part in ("console", "scripts", "src/starling/app/http", "src/starling/core/run_document"):
        shutil.copytree(ROOT / part, checkout / part)
    shutil.copy(ROOT / "Makefile", checkout)
    (checkout / ".venv").symlink_to(ROOT / ".venv")
    for script in ("bootstrap", "server-env"):
        (checkout / "scripts" / script).write_text("#!/bin/sh\n")
    demo = checkout / "examples/demo/run.py"
    demo.parent.mkdir(parents=True)
    demo.write_text("print('The demo runs.')")
    home.mkdir()
    away = {"HOME": str(home), "npm_config_registry": f"http://127.0.0.1:{free_port()}"}

    done = subprocess.run(
        ["make", "demo"],
        cwd=checkout,
        env={"PATH": os.environ["PATH"]} | away,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stdout) == (0, "The demo runs.\n"), done.stderr
    assert "The console could not be built; all else works without it." in done.stderr
    assert not (checkout / "src/starling/console").exists()
