"""Reading the settings file."""

import os
from pathlib import Path

import pytest

from starling.app.cli.platform.settings_file import read_settings_file
from starling.core.errors import ConfigurationError

_NOBODY = 65_534


def test_without_a_file_nothing_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert read_settings_file(None) == {}


def test_starling_yaml_of_this_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("starling.yaml").write_text("port: 1\nmodel: [a:b]\n")

    assert read_settings_file(None) == {"port": 1, "model": ["a:b"]}


def test_folder_that_may_not_be_entered_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "starling.yaml").write_text("port: 1\n")
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0)
    user = os.geteuid()

    os.seteuid(user or _NOBODY)  # root may enter every folder
    try:
        found = read_settings_file(None)
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o700)

    assert found == {}


def test_a_file_of_comments_sets_nothing(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("# later\n")

    assert read_settings_file(file) == {}


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"port: 1\nbogus: [1\n", "is not YAML: .* at line 3, column 1"),
        (b"a: 1: 2\n", "is not YAML: .* at line 1"),
        (b"- port\n", "it has no settings"),
        (b"port: \xff\n", "can't be read: .*utf-8"),
        (b"port: \x01\n", "is not YAML"),
        (b"a: {b: 1,\n  b: 2}\n", "the name 'b' is used twice at line 2, column 3"),
    ],
)
def test_a_file_that_isnt_right_is_named_with_the_place(tmp_path: Path, content: bytes, wrong: str) -> None:
    file = tmp_path / "my.yaml"
    file.write_bytes(content)

    with pytest.raises(ConfigurationError, match=wrong) as caught:
        read_settings_file(file)

    assert str(file) in caught.value.message
    assert caught.value.remedy


def test_a_merged_mapping_may_replace_names_of_what_it_merges(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("a: &a {x: 1, y: 1}\nb: {c: &c {<<: *a, x: 2}}\nd: {<<: *c}\n")

    assert read_settings_file(file)["d"] == {"x": 2, "y": 1}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"There is no settings file .*my\.yaml"):
        read_settings_file(tmp_path / "my.yaml")
