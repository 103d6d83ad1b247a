"""Output: for a person on a terminal, for a program in a pipe."""

import io
import json

import pytest
from rich.console import Console

from starling.app.cli.terminal import output


def table(width: int, heads: tuple[str, ...], *row: str) -> str:
    """Return what a terminal of this width shows of a table with one row."""
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=width, color_system=None, soft_wrap=True)
    output.write_table(terminal, heads, [row])
    return screen.getvalue()


def test_a_table_in_a_pipe_is_tab_separated(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("A", "B"), [("one\ntwo", "x" * 300)])

    assert capsys.readouterr().out == f"A\tB\none two\t{'x' * 300}\n"


def test_a_table_on_a_terminal_cuts_nothing_but_wraps_its_last_column() -> None:
    shown = table(60, ("ID", "WHAT"), "0" * 36, "[bold]a request that is longer than the line")

    assert "0" * 36 in shown
    assert "[bold]a request" in shown
    assert "…" not in shown


@pytest.mark.parametrize("width", range(30, 100, 3))
def test_a_table_cuts_no_character_at_any_width(width: int) -> None:
    heads = ("EPOCH", "STATE", "MADE", "BY", "RUNS", "WHAT CHANGED")
    row = ("1", "active", "2026-11-22 08:02:38 UTC", "local, start", "0", "+broken, +effects, +system_health, +time")

    shown = table(width, heads, *row)

    assert max(map(len, shown.splitlines())) <= width
    assert sorted("".join(shown.split())) == sorted("".join("".join((*heads, *row)).split()))


def test_a_table_that_is_too_wide_wraps_between_words_where_that_suffices() -> None:
    row = ("1", "active", "2026-11-22 08:02:38 UTC", "local", "696da0bd8c0f", "5d97110765e0", "proven")

    shown = table(80, ("VERSION", "STATE", "CREATED", "BY", "SPEC", "STAR", "PROOF"), *row)

    assert {*row[:2], "2026-11-22", "08:02:38", *row[3:]} <= {*shown.split()}


def test_a_table_folds_its_last_column_before_the_words_of_the_others() -> None:
    row = ("system_health_team_2", "unproven", "1", "reads the file /tmp/folder/of/files/a.txt")

    shown = table(60, ("NAME", "STATE", "VERSION", "PURPOSE"), *row)

    assert {*row[:3]} <= {*shown.split()}


@pytest.mark.parametrize("sign", ["\x1b", "\x9b", "\u202e", "\u2066", "\u2028", "\U000e0041"])
def test_characters_that_control_or_reorder_a_terminal_are_replaced(
    capsys: pytest.CaptureFixture[str], sign: str
) -> None:
    output.print_table(("A",), [(f"a{sign}b",)])
    output.print_line(f"a{sign}b")

    assert capsys.readouterr().out == "A\na�b\na�b\n"


def test_letters_of_any_script_and_joined_emoji_are_printed_as_they_are() -> None:
    text = "é שלום ไทย 👩\u200d🚀"

    assert output.printable(text) == text


def test_json_is_one_line_with_the_characters_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"text": "é\n"})

    assert capsys.readouterr().out == '{"text": "é\\n"}\n'


@pytest.mark.parametrize("sign", ["\x80", "\x9b", "\u061c", "\u200e", "\u200f", "\u202e", "\u2066", "\U000e0041"])
def test_json_escapes_what_controls_or_reorders_a_terminal(capsys: pytest.CaptureFixture[str], sign: str) -> None:
    output.print_json({"te" + sign: ["a" + sign]})

    shown = capsys.readouterr().out
    assert sign not in shown
    assert json.loads(shown) == {"te" + sign: ["a" + sign]}


@pytest.mark.parametrize("text", ["at :100: and :x: :smile:", "[bold]rm[/bold] [/]", "C:\\[a]  two  spaces"])
def test_terminal_shows_exactly_what_is_there(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    screen = on_terminal(monkeypatch, 60)

    output.print_line(text)
    output.print_note(text)

    assert screen.getvalue() == f"{text}\n{text}\n"


def test_lines_on_a_terminal_end_between_words_and_keep_their_indentation(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminal(monkeypatch, 40)
    text = "  [1] " + " ".join(f"word{number}" for number in range(30)) + "\n\n" + "x" * 60

    output.print_line(text)

    first, _, second = screen.getvalue().partition("\n\n")
    assert first.split() == text.partition("\n")[0].split()
    assert all(line.startswith("  ") for line in first.splitlines())
    assert second.split() == ["x" * 40, "x" * 20]
    assert max(len(line.rstrip()) for line in screen.getvalue().splitlines()) <= 40


def test_lines_in_a_pipe_are_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_line("word " * 100)

    assert capsys.readouterr().out == "word " * 100 + "\n"


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> io.StringIO:
    """Make stdout and stderr a terminal of this width, with the settings of the real consoles."""
    screen = io.StringIO()
    for console in (output.results(), output.diagnostics()):
        monkeypatch.setattr(console, "_file", screen)
        monkeypatch.setattr(console, "_force_terminal", True)
        monkeypatch.setattr(console, "_color_system", None)
        monkeypatch.setattr(console, "_width", width)
        monkeypatch.setattr(console, "_height", 40)
    return screen
