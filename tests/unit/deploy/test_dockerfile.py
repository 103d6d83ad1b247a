"""The Dockerfile as it is written: what its last stage has, who runs it, and how its packages are installed."""

import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path, PurePosixPath
from threading import Thread

import pytest

from tests.support.dockerfile import Dockerfile, Instruction, is_ignored, read_dockerfile

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy/Dockerfile"


@pytest.fixture(scope="module")
def dockerfile() -> Dockerfile:
    return read_dockerfile(FILE.read_text("utf-8"))


def image_instructions(dockerfile: Dockerfile) -> list[Instruction]:
    """Return the instructions of the image that is built when no stage is named."""
    return [each for stage in dockerfile.lineage(dockerfile.stages[-1].name) for each in stage.instructions]


def test_hadolint_has_no_remark() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")

    outcome = subprocess.run([hadolint, FILE], capture_output=True, text=True, check=False)

    assert (outcome.stdout, outcome.returncode) == ("", 0)


def test_image_runs_as_a_user_with_a_number_that_is_not_root(dockerfile: Dockerfile) -> None:
    uid, gid = dockerfile.last("starling", "USER").rest.split(":")
    with_launchers = dockerfile.last("with-launchers", "USER").rest

    assert int(uid) > 0
    assert int(gid) > 0
    assert with_launchers == f"{uid}:{gid}"


def test_last_stage_installs_nothing(dockerfile: Dockerfile) -> None:
    steps = [each for each in image_instructions(dockerfile) if each.name == "RUN"]

    assert dockerfile.stages[-1].name == "starling"
    assert [each.words[0] for each in steps] == ["install"]  # folders that the user owns


def test_each_package_is_installed_with_hashes_or_from_the_context(dockerfile: Dockerfile) -> None:
    steps = [each.rest for stage in dockerfile.stages for each in stage.instructions if each.name == "RUN"]
    installs = [part for step in steps for part in step.split("&&") if " install" in part or "pip sync" in part]
    packages = [part for part in installs if "--directory" not in part]

    assert len(packages) == 3
    for part in packages:
        assert "--require-hashes" in part or {"--offline", "--no-deps", "dist/*.whl"} <= set(part.split()), part


def test_health_check_needs_no_other_program_than_python(dockerfile: Dockerfile) -> None:
    check = dockerfile.last("starling", "HEALTHCHECK")

    assert check.rest == 'CMD ["python", "-I", "-S", "/opt/starling/healthcheck.py"]'


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("src/starling/py.typed", False),
        ("deploy/build.lock", False),
        ("migrations/env.py", False),
        ("src/starling/__pycache__/a.cpython-312.pyc", True),
        (".git/config", True),
        (".env", True),
        ("deploy/secrets/database_url", True),
        ("tests/conftest.py", True),
        (".venv/bin/python", True),
    ],
)
def test_context_holds_only_what_the_dockerfile_copies(path: str, ignored: bool) -> None:
    patterns = (ROOT / ".dockerignore").read_text("utf-8")

    assert is_ignored(PurePosixPath(path), patterns) is ignored


class Refusing(BaseHTTPRequestHandler):
    """Answers as a process that is alive but refuses."""

    def do_GET(self) -> None:
        self.send_response(503 if self.path == "/health" else 200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        pass


def test_health_check_fails_if_the_answer_is_not_200() -> None:
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        outcome = subprocess.run(
            [sys.executable, "-I", "-S", ROOT / "deploy/healthcheck.py"],
            env={"PORT": str(server.server_port)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        server.shutdown()

    assert outcome.returncode == 1
    assert outcome.stderr == f"Port {server.server_port} answers 503.\n"
