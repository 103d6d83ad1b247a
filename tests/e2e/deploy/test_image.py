"""The commands of the image, run as its user in what its steps made: they answer, stay in their folders, and drain."""

import json
import re
import signal
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.metadata import distributions

import httpx
import pytest
from sqlalchemy import URL, make_url

from starling.core.settings.schema import Limits
from tests.e2e.deploy.conftest import COMMIT, ROOT
from tests.support.command_line import new_workspace
from tests.support.gateway_harness import free_port
from tests.support.image_replay import ImageReplay

pytestmark = pytest.mark.timeout(300)  # nothing of the new environment is compiled yet

STAGE = "starling"
WRITABLE = ("var/lib/starling", "home/starling")


def words(image: ImageReplay, name: str) -> list[str]:
    return image.dockerfile.last(STAGE, name).words


def user(image: ImageReplay) -> str:
    return words(image, "USER")[0]


def environment(image: ImageReplay, **variables: str) -> dict[str, str]:
    return image.image_environment | {"TMPDIR": image.image_environment["HOME"]} | variables


def run(image: ImageReplay, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the image to its end, as its user."""
    return subprocess.run(
        image.command(command, user=user(image)),
        cwd=image.moved(image.workdir),
        env=environment(image, **variables),
        text=True, capture_output=True, check=False,
    )  # fmt: skip


@contextmanager
def running(image: ImageReplay, *command: str, **variables: str) -> Generator[subprocess.Popen[str]]:
    """Run a service of the image from the line on which it says that it is ready."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        image.command([*words(image, "ENTRYPOINT"), *command], user=user(image)),
        cwd=image.moved(image.workdir), env=environment(image, **variables), text=True, stdout=pipe, stderr=pipe,
    ) as process:  # fmt: skip
        try:
            assert process.stdout
            assert process.stderr
            assert process.stdout.readline(), process.stderr.read()
            yield process
        finally:
            process.kill()


def over_tcp(url: str) -> str:
    """Return the address of a database of the tests' server for a user who can't reach its Unix socket."""
    address = make_url(url)
    return URL.create(
        "postgresql", address.username, address.password, "127.0.0.1", int(str(address.query["port"])), address.database
    ).render_as_string(hide_password=False)


def healthy(image: ImageReplay, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the command of HEALTHCHECK with the variables of a container."""
    check = image.dockerfile.last(STAGE, "HEALTHCHECK")
    command: list[str] = json.loads(check.rest.removeprefix("CMD"))
    return run(image, *command, **variables)


def files(image: ImageReplay) -> dict[str, int]:
    """Return when each file of the image was changed, without those in folders that are volumes."""
    kept = [image.root / folder for folder in WRITABLE]
    return {
        str(file.relative_to(image.root)): file.lstat().st_mtime_ns
        for file in image.root.rglob("*")
        if not any(file.is_relative_to(folder) for folder in kept)
    }


def test_image_serves_the_api_as_its_user_and_ends_on_sigterm(image: ImageReplay, database_url: str) -> None:
    before = files(image)
    variables = {"DATABASE_URL": over_tcp(database_url), "PORT": str(free_port())}
    address = f"http://127.0.0.1:{variables['PORT']}"
    with new_workspace(DATABASE_URL=database_url) as workspace:
        assert workspace.starling("key", "create", "test").returncode == 0

    with running(image, *words(image, "CMD"), **variables) as serving:
        ready = httpx.get(f"{address}/ready").status_code
        without_key = httpx.get(f"{address}/v1/agents").status_code
        check = healthy(image, variables)
        serving.send_signal(signal.SIGTERM)
        code = serving.wait(Limits().drain_seconds + 20)
    gone = healthy(image, variables)

    assert (ready, without_key) == (200, 401)
    assert (check.returncode, check.stderr) == (0, "")
    assert code == 0
    assert gone.returncode == 1
    assert files(image) == before


@pytest.mark.soak
def test_image_with_crewai_migrates_answers_a_run_and_drains(
    image_with_crewai: ImageReplay, empty_database_url: str
) -> None:
    image = image_with_crewai
    before = files(image)
    database = {"DATABASE_URL": over_tcp(empty_database_url), "STARLING_MODEL": "offline:rules"}
    api = database | {"PORT": str(free_port())}
    worker = database | {"STARLING_WORKER_PORT": str(free_port())}
    request = {"input": "Hello", "thread_id": "t"}

    upgraded = run(image, "starling", "db", "upgrade", **database)
    assert upgraded.returncode == 0, upgraded.stderr
    key = run(image, "starling", "key", "create", "test", **database).stdout.strip()
    with running(image, *words(image, "CMD"), **api) as serving, running(image, "worker", **worker) as working:
        checks = [healthy(image, api), healthy(image, worker)]
        headers = {"Authorization": f"Bearer {key}"}
        asked = httpx.post(f"http://127.0.0.1:{api['PORT']}/process", json=request, headers=headers, timeout=60)
        for process in (working, serving):
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(Limits().drain_seconds + 20) for process in (working, serving)]

    assert [(check.returncode, check.stderr) for check in checks] == [(0, ""), (0, "")]
    assert asked.json()["status"] == "succeeded", asked.text
    assert codes == [0, 0]
    assert files(image) == before


def test_image_names_the_commit_that_it_was_built_from(image: ImageReplay) -> None:
    assert run(image, "starling", "--version").stdout.endswith(f" (commit {COMMIT})\n")


def test_application_folder_can_not_be_changed_by_its_user(image: ImageReplay) -> None:
    tried = run(image, "sh", "-c", f"find {image.root} -writable -not -type l; touch /opt/starling/x")

    writable = {line.removeprefix(f"{image.root}/") for line in tried.stdout.splitlines()}
    assert {name for name in writable if not name.startswith(WRITABLE)} == set()
    assert tried.returncode != 0


def test_image_has_the_packages_of_the_runtime_lock_and_no_compiler(image: ImageReplay) -> None:
    lock = (ROOT / "requirements-runtime.lock").read_text("utf-8")
    locked = set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
    libraries = next((image.root / "opt/starling/lib").glob("python3*")) / "site-packages"
    installed = {re.sub(r"[._]", "-", found.name.lower()) for found in distributions(path=[str(libraries)])}
    programs = {file.name for file in (image.root / "opt").rglob("bin/*")}

    assert "starling-swarm" in installed
    assert installed - {"starling-swarm"} <= locked
    assert not installed & {"pytest", "ruff", "hatchling", "pyright", "pip", "uv"}
    assert not {
        name
        for name in programs
        if re.fullmatch(r"(x86_64-\S+-)?(gcc|g\+\+|cc|clang|ld|make|rustc|cargo)(-[0-9]+)?|uvx?|pip\S*", name)
    }


@pytest.mark.soak
def test_image_with_crewai_has_both_runtimes_and_compiled_modules(
    image_with_crewai: ImageReplay, database_url: str
) -> None:
    found = run(
        image_with_crewai, "starling", "doctor", DATABASE_URL=over_tcp(database_url), STARLING_MODEL="offline:rules"
    )
    libraries = image_with_crewai.root / "opt/starling/lib"
    compiled = sum(1 for _ in libraries.rglob("*.pyc"))
    modules = sum(1 for file in libraries.rglob("*.py") if "templates" not in file.parts)

    assert "CrewAI" in found.stdout, found.stdout + found.stderr
    assert compiled > 0.95 * modules


def test_step_that_names_a_path_of_the_machine_is_refused(image: ImageReplay) -> None:
    with pytest.raises(ValueError, match="/etc/motd isn't below"):
        image.moved("echo hello > /etc/motd")
