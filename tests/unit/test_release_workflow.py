"""The workflow that makes a release: valid, pinned, with as few rights as each job needs, and its scripts exist."""

import json
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github/workflows/release.yml"
SCHEMA = ROOT / "tests/data/workflow_schema/github-workflow.json"
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    return yaml.load(WORKFLOW.read_text("utf-8"), yaml.BaseLoader)  # noqa: S506 - strings only: `on` is not a truth value


def steps(workflow: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, step) for name, job in workflow["jobs"].items() for step in job["steps"])


def test_workflow_fits_the_published_schema() -> None:
    document = yaml.safe_load(WORKFLOW.read_text("utf-8"))
    document["on"] = document.pop(True)  # YAML 1.1, which PyYAML reads, takes `on` for true

    errors = [error.message for error in Draft7Validator(json.loads(SCHEMA.read_text("utf-8"))).iter_errors(document)]

    assert errors == []


def test_every_action_is_pinned_by_commit_and_names_its_version() -> None:
    used = [line.strip().removeprefix("- ") for line in WORKFLOW.read_text("utf-8").splitlines() if "uses:" in line]

    assert used
    assert [line for line in used if not PINNED.fullmatch(line)] == []


def test_only_the_jobs_that_sign_or_publish_have_rights(workflow: dict[str, Any]) -> None:
    rights = {name: job["permissions"] for name, job in workflow["jobs"].items()}

    assert workflow["permissions"] == {}
    assert rights == {
        "files": {"contents": "read"},
        "image": {"contents": "read"},
        "attest": {"id-token": "write", "attestations": "write"},
        "pypi": {"id-token": "write"},
        "push": {"packages": "write", "id-token": "write", "attestations": "write"},
        "github": {"contents": "write"},
    }


def test_no_job_that_may_publish_runs_code_of_the_checkout(workflow: dict[str, Any]) -> None:
    checked_out = {name for name, step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")}

    assert checked_out == {"files", "image"}
    assert workflow["jobs"]["pypi"]["environment"]["name"] == "pypi"
    assert "secrets." not in WORKFLOW.read_text("utf-8")


def test_image_is_built_on_a_base_by_digest_pushed_as_built_and_attested_with_its_bill_of_materials(
    workflow: dict[str, Any],
) -> None:
    built = next(step for name, step in steps(workflow) if name == "image" and "build-args" in step.get("with", {}))
    pushed = [step for name, step in steps(workflow) if name == "push"]
    attested = {step["uses"].partition("@")[0]: step["with"] for step in pushed if "attest" in step.get("uses", "")}
    dockerfile = ROOT / built["with"]["file"]

    assert "PYTHON_IMAGE=${{ steps.base.outputs.image }}" in built["with"]["build-args"]
    assert re.search(r"^ARG PYTHON_IMAGE=\S+$", dockerfile.read_text("utf-8"), re.MULTILINE)
    assert (built["with"]["sbom"], built["with"]["provenance"]) == ("true", "mode=max")
    assert any("--preserve-digests" in step.get("run", "") for step in pushed)
    assert set(attested) == {"actions/attest-build-provenance", "actions/attest-sbom"}
    assert {each["subject-digest"] for each in attested.values()} == {"${{ steps.push.outputs.digest }}"}


def test_release_says_where_it_pushes(workflow: dict[str, Any], tmp_path: Path) -> None:
    (step,) = (step for name, step in steps(workflow) if name == "push" and step.get("id") == "push")
    for name, script in {
        "docker": "cat >login; echo docker $* >>calls",
        "skopeo": "echo $* >>calls; echo sha256:4711 >digest",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "IMAGE": "registry.example/stars/starling",
        "GITHUB_REF_NAME": "v1.2.3",
        "GITHUB_ACTOR": "somebody",
        "TOKEN": "a token",
        **{name: str(tmp_path / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")},
    }

    subprocess.run(["/bin/bash", "-eo", "pipefail", "-c", step["run"]], env=variables, cwd=tmp_path, check=True)

    assert step["env"]["IMAGE"] == "${{ vars.IMAGE }}"
    assert {name: (tmp_path / name).read_text("utf-8").splitlines() for name in ("login", "calls")} == {
        "login": ["a token"],
        "calls": [
            "docker login --username somebody --password-stdin registry.example",
            f"copy --all --preserve-digests --digestfile digest oci-archive:image.tar docker://{variables['IMAGE']}:1.2.3",
        ],
    }
    assert (tmp_path / "GITHUB_OUTPUT").read_text("utf-8") == "digest=sha256:4711\n"
    said = (tmp_path / "GITHUB_STEP_SUMMARY").read_text("utf-8")
    assert said == "Pushed registry.example/stars/starling@sha256:4711 with the tag 1.2.3.\n"


@pytest.mark.parametrize(("image", "code"), [("registry.example/stars/starling", 0), ("", 1)])
def test_image_is_built_only_where_the_variable_says_where_it_is_pushed(
    workflow: dict[str, Any], image: str, code: int
) -> None:
    first = workflow["jobs"]["image"]["steps"][0]

    done = subprocess.run(["/bin/bash", "-ec", first["run"]], env={"IMAGE": image}, check=False)

    assert (first["env"], done.returncode) == ({"IMAGE": "${{ vars.IMAGE }}"}, code)


def test_image_gets_the_console_of_the_wheel_before_it_is_built(workflow: dict[str, Any], tmp_path: Path) -> None:
    names = [step.get("name") or step["uses"].partition("@")[0] for step in workflow["jobs"]["image"]["steps"]]
    (step,) = (step for name, step in steps(workflow) if name == "image" and "console" in step.get("name", ""))
    (tmp_path / "src/starling").mkdir(parents=True)
    (tmp_path / "release").mkdir()
    with zipfile.ZipFile(tmp_path / "release/starling_swarm-1.2.3-py3-none-any.whl", "w") as wheel:
        wheel.writestr("starling/console/assets/page.js", "page")

    subprocess.run(["/bin/sh", "-euc", step["run"]], cwd=tmp_path, check=True)

    assert (tmp_path / "src/starling/console/assets/page.js").read_text("utf-8") == "page"
    assert names.index(step["name"]) < names.index("docker/build-push-action")


def test_scripts_that_the_workflow_calls_can_be_executed(workflow: dict[str, Any]) -> None:
    called = [
        word for _, step in steps(workflow) for word in re.findall(r"(?:scripts|\.ci)/[\w-]+", step.get("run", ""))
    ]

    assert called == ["scripts/release-version", ".ci/run", "scripts/release-files"]
    assert [name for name in called if not (ROOT / name).stat().st_mode & 0o100] == []


@pytest.mark.parametrize(
    ("tag", "changelog", "code", "said"),
    [
        ("v1.2.3", "## [1.2.3] - 2026-11-22", 0, ""),
        (
            "v1.2.4",
            "## [1.2.3] - 2026-11-22",
            1,
            "The tag is v1.2.4, but pyproject.toml has the version 1.2.3: tag v1.2.3.",
        ),
        ("v1.2.3", "## [Unreleased]", 1, "CHANGELOG.md has no section [1.2.3]: rename [Unreleased]."),
    ],
)
def test_release_needs_the_tag_of_its_version_and_a_section_of_the_changelog(
    tmp_path: Path, tag: str, changelog: str, code: int, said: str
) -> None:
    (tmp_path / "scripts").mkdir()
    for name in ("common.sh", "release-version"):
        (tmp_path / "scripts" / name).write_bytes((ROOT / "scripts" / name).read_bytes())
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"{changelog}\n")

    done = subprocess.run(
        ["/bin/sh", tmp_path / "scripts/release-version", tag], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr.strip()) == (code, said)
