"""The drawing of a team: who gives tasks to whom, in text that a spec can't change."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from architect.compiler import compile_team
from architect.team_graph import Edge, mermaid, team_graph
from starling.core.teams.spec import TeamSpec
from starling.core.teams.stars import StarSpec
from tests.support.team_specs import WORLD, member, team_spec

NODE = r'n\d+(?:\["LABEL"\]|\(\["LABEL"\]\)|\[\("LABEL"\)\])'.replace("LABEL", r"(?:\w|[ \-.,()/]|#\d+;|<br/>)*")
EDGE = r'n\d+ -->(?:\|"\d+ tools?"\|)? n\d+'
FLOWCHART = re.compile(rf"flowchart TD\n(?:    (?:{NODE}|{EDGE})\n)+")


def star_of(team: TeamSpec) -> StarSpec:
    return compile_team(team, WORLD, creator=None, activator=None)


def test_graph_has_members_inner_teams_and_servers_once_each() -> None:
    team = team_spec(member(server="git"), member("clock", server="time"), member("inner", team="git_team"))

    graph = team_graph(star_of(team))

    assert [(node.id, node.kind, node.team) for node in graph.nodes] == [
        ("news", "team", None),
        ("news/historian", "member", None),
        ("server:git", "server", None),
        ("news/clock", "member", None),
        ("server:time", "server", None),
        ("news/inner", "member", "git_team"),
        ("news/inner/historian", "member", None),
    ]
    assert (
        Edge(source="news/inner/historian", target="server:git", tools=("git.git_commit", "git.git_log")) in graph.edges
    )
    assert Edge(source="news", target="news/inner") in graph.edges


def test_mermaid_draws_each_node_and_edge_on_a_line() -> None:
    text = mermaid(team_graph(star_of(team_spec(member(server="time"), member("writer")))))

    assert text == (
        "flowchart TD\n"
        '    n0(["news<br/>Tells what is new."])\n'
        '    n1["historian<br/>historian"]\n'
        '    n2[("time")]\n'
        '    n3["writer<br/>historian"]\n'
        "    n0 --> n1\n"
        '    n1 -->|"1 tool"| n2\n'
        "    n0 --> n3\n"
    )


@pytest.mark.parametrize(
    ("role", "label"),
    [
        pytest.param(
            'a"]; click n0 "javascript:alert(1)', "a#34;#93;#59; click n0 #34;javascript#58;alert(1)", id="quote"
        ),
        pytest.param("a\nn9 --> n0", "a n9 --#62; n0", id="new-line"),
        pytest.param("%%{init: {}}%%", "#37;#37;#123;init#58; #123;#125;#125;#37;#37;", id="directive"),
        pytest.param("<script>x</script>", "#60;script#62;x#60;/script#62;", id="html"),
        pytest.param("#quot; & &lt;", "#35;quot#59; #38; #38;lt#59;", id="entities"),
        pytest.param("`**bold**`", "#96;#42;#42;bold#42;#42;#96;", id="markdown"),
        pytest.param("\u202eevil\u2066", "evil", id="direction-of-writing"),
        pytest.param("\u2028n9", "n9", id="line-separator"),
        pytest.param("Prüft 数据", "Prüft 数据", id="letters-of-any-script"),
    ],
)
def test_role_that_looks_like_mermaid_is_only_a_label(role: str, label: str) -> None:
    text = mermaid(team_graph(star_of(team_spec(member(role=role)))))

    (line,) = (line for line in text.splitlines() if line.startswith("    n1["))
    assert line.removeprefix('    n1["historian<br/>').removesuffix('"]').strip() == label


@given(st.text(min_size=1), st.text(min_size=1))
def test_text_of_any_spec_leaves_the_flowchart_well_formed(role: str, purpose: str) -> None:
    star = StarSpec.model_validate(
        {
            "name": role,
            "purpose": purpose,
            "members": [{"name": purpose, "persona": {"role": "x", "goal": "x"}, "server": role}],
        }
    )

    text = mermaid(team_graph(star))

    assert FLOWCHART.fullmatch(text)
    assert len(text.splitlines()) == 6
