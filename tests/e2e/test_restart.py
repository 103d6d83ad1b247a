"""A platform that starts again opens the sessions of the servers that were called before, and of no others."""

import asyncio
import contextlib
import sys
from pathlib import Path

import psutil

from tests.support.effect_recorder import EffectRecorder
from tests.support.gateway_harness import SERVERS
from tests.support.platform_process import PlatformProcess


async def test_restart_opens_the_session_of_a_server_that_was_called_before_without_a_request(
    open_folder: Path,
) -> None:
    recording = [str(SERVERS / "recording.py"), str(open_folder / "log")]
    servers = {
        "recorder": {"command": sys.executable, "args": recording, "x-starling": {"effect": "read"}},
        "idle": EffectRecorder(open_folder / "effects").as_server(),
    }
    async with PlatformProcess.running(open_folder, servers, {"STARLING_MODEL": "offline:rules"}) as platform:
        asked = await platform.ask("Record the text 'kept'")
        await platform.end()

        await platform.start()
        async with asyncio.timeout(60):
            while not (opened := _running(platform)):  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.05)

    assert asked[-1].data["status"] == "succeeded"
    assert opened == {"recording.py"}


def _running(platform: PlatformProcess) -> set[str]:
    """Return the programs of the servers that run."""
    words: set[str] = set()
    for process in platform.family():
        with contextlib.suppress(psutil.NoSuchProcess):
            words |= {Path(word).name for word in process.cmdline()}
    return words & {"recording.py", "effects.py"}
