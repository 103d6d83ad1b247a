"""What a stdio server finds of the platform's files and process."""

import os
from pathlib import Path

import pytest

from mcp_gateway.configuration.servers import server_of
from mcp_gateway.registration.discovery import try_servers
from mcp_gateway.sessions.isolation import NO_PRIVATE_FILES, PrivateFiles, machine_isolation, paths_to_hide
from starling.core.errors import ServerUnavailableError
from starling.core.settings.schema import Limits

SECRET = "starling-local-of-this-platform"


@pytest.fixture
def private(tmp_path: Path) -> PrivateFiles:
    folder = tmp_path / "data"
    (folder / "postgres").mkdir(parents=True)
    for file in (folder / "token", folder / "notes", folder / "postgres" / "password"):
        file.write_text(SECRET)
    return PrivateFiles(folder, (folder / "token", folder / "postgres"))


async def said(script: str, private: PrivateFiles, *arguments: str) -> str:
    """Return what a server that only runs a script writes to stderr, on one line."""
    config = server_of(
        {
            "command": "/bin/sh",
            "args": ["-c", f'echo "[$({script})]" 2>&1 | tr "\\n" " " >&2', "sh", *arguments],
            "env": {"NEAR": str(private.folder.parent)},
        }
    )
    failed = (await try_servers({"x": config}, Limits(), {"PATH": os.environ["PATH"]}, private))["x"]
    assert isinstance(failed, ServerUnavailableError)
    return failed.reason


async def test_server_reads_nothing_of_the_data_folder(private: PrivateFiles) -> None:
    script = 'cat "$NEAR"/data/token "$NEAR"/data/notes "$NEAR"/data/postgres/password; find "$NEAR"/data -type f'

    found = await said(script, private)

    assert "[]" in found
    assert SECRET in await said(script, PrivateFiles(private.folder))


async def test_server_that_works_in_the_data_folder_reads_all_but_what_the_platform_keeps_there(
    private: PrivateFiles,
) -> None:
    script = 'cat "$1"/notes; cat "$1"/token "$1"/postgres/password'

    assert f"[{SECRET}]" in await said(script, private, str(private.folder))


async def test_server_of_root_can_neither_uncover_the_files_nor_trace_the_platform(private: PrivateFiles) -> None:
    if os.geteuid() != 0:
        pytest.skip("a server of another user has no capabilities to begin with")
    script = 'umount "$NEAR"/data; cat "$NEAR"/data/token; grep CapEff /proc/self/status'

    found = await said(script, private)

    effective = int(found.partition("CapEff:")[2].split()[0].rstrip("]."), 16)
    assert SECRET not in found
    assert [bit for bit in (2, 16, 17, 19, 21, 27, 38, 39, 40) if effective >> bit & 1] == []


async def test_server_does_not_get_the_list_of_hidden_files(private: PrivateFiles) -> None:
    assert "[]" in await said("env | grep STARLING_SHIM", private)


async def test_machine_of_these_tests_hides_files_from_servers() -> None:
    assert (await machine_isolation()).files_reason == ""


def test_paths_are_hidden_by_what_the_server_uses(private: PrivateFiles) -> None:
    entries = [str(path) for path in private.entries]
    whole = [str(private.folder)]

    assert paths_to_hide(private, ["npx", "/srv", "--root=/var"]) == whole
    assert paths_to_hide(private, ["npx", f"--root={private.folder}/files"]) == entries
    assert paths_to_hide(private, [f"/usr/lib:{private.folder}"]) == entries
    assert paths_to_hide(NO_PRIVATE_FILES, ["npx"]) == []
