"""`starling init`: write commented configuration files to begin with, and the model that a person chooses."""

import json
import os
import sys
from functools import partial
from typing import Final

import typer

from starling.app.cli.options import Json
from starling.app.cli.platform import late_imports
from starling.app.cli.platform.settings_file import DEFAULT
from starling.app.cli.terminal.output import print_json, print_line
from starling.app.cli.terminal.prompts import has_person
from starling.core.errors import ConfigurationError
from starling.core.settings.client import ENVIRONMENT_FILE

app = typer.Typer(add_completion=False)

_SERVERS: Final = """\
// The MCP servers of Starling: each becomes one specialist agent. Comments and trailing commas are allowed here.
// `starling server enable NAME` tries one that is "disabled" and enables it, also while `starling up` runs.
//
// "x-starling" is for Starling alone: "effect" says what the tools of a server may change. Tools that only "read" are
// called freely; calls of others are recorded before they are made. ${VARIABLE} is read when the server is started,
// from the environment or starling.env.
{
  "mcpServers": {
    // This machine: processor, memory, disk, load. Comes with Starling.
    "system_health": {
      "command": PYTHON,
      "args": ["-m", "mcp_gateway.servers.system_health"],
      "x-starling": {"effect": "read"},
    },

    // The time in any time zone, and conversions.
    "time": {"disabled": true, "command": "uvx", "args": ["mcp-server-time"], "x-starling": {"effect": "read"}},

    // Files below the folders that you name.
    "filesystem": {
      "disabled": true,
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "."],
      "x-starling": {"approval": "unsafe"},
    },

    // A git repository.
    "git": {"disabled": true, "command": "uvx", "args": ["mcp-server-git", "--repository", "."]},

    // A SQLite database (the server needs an MCP library older than version 2).
    "sqlite": {
      "disabled": true,
      "command": "uvx",
      "args": ["--with", "mcp<2", "mcp-server-sqlite", "--db-path", "data.db"],
    },

    // Web pages as text.
    "fetch": {"disabled": true, "command": "uvx", "args": ["mcp-server-fetch"], "x-starling": {"effect": "read"}},

    // A memory of entities and their relations, kept in a file.
    "memory": {"disabled": true, "command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]},

    // A server that you reach over HTTP, with a key from the environment.
    // "remote": {
    //   "url": "https://example.com/mcp",
    //   "headers": {"Authorization": "Bearer ${REMOTE_KEY}"},
    // },
  },
}
"""

_SETTINGS: Final = """\
# The settings of Starling in this folder. Environment variables override them; docs/reference/settings.md lists all.

# Ask a person before each call that may change something, where a server says nothing else: never, unsafe or always.
approval: unsafe

# The models, with fallbacks in order. Without one: OpenAI's if OPENAI_API_KEY is set, else a local Ollama.
{model}# model_reasoning: openai:gpt-4.1, openai:gpt-4.1-mini

# An endpoint of your own that speaks OpenAI's protocol: its models are named local:MODEL.
# providers:
#   local:
#     base_url: http://localhost:9000/v1

# A Postgres of your own (16 or newer, with pgvector); without it Starling runs one in its data folder.
# database_url: postgresql://user:password@localhost:5432/starling
# data_dir: ./data

# Where the API listens. Other machines need a key, which `starling key create` makes.
# host: 127.0.0.1
# port: 8000

# Where commands look for the API if none runs on the data folder.
# url: http://127.0.0.1:8000

# limits:
#   run_seconds: 300
#   tool_call_seconds: 30
"""


@app.command()
def init(as_json: Json = False) -> None:
    """Write mcp.json and starling.yaml with comments into this folder. Files that are there are not changed.

    On a terminal it first asks for a model, and tries it. A key is written into starling.env, which only you can read.
    """
    is_asked = has_person() and not as_json and not (DEFAULT.exists() or ENVIRONMENT_FILE.exists())
    chosen = late_imports.chosen_model() if is_asked else {}
    key = chosen.pop("openai_api_key", "")
    model = "".join(f"{name}: {json.dumps(value)}\n" for name, value in chosen.items())
    files = {
        "mcp.json": _SERVERS.replace("PYTHON", json.dumps(sys.executable)),
        "starling.yaml": _SETTINGS.replace("{model}", model or "# model: openai:gpt-4.1-mini\n"),
        **({str(ENVIRONMENT_FILE): f"OPENAI_API_KEY={key}\n"} if key else {}),
    }
    written: list[str] = []
    for name, text in files.items():
        try:
            opener = partial(os.open, mode=0o600 if name == str(ENVIRONMENT_FILE) else 0o666)
            with open(name, "x", encoding="utf-8", opener=opener) as opened:
                opened.write(text)
            written.append(name)
        except FileExistsError:
            continue
        except OSError as error:
            reason = f"{name} can't be written: {error.strerror}."
            raise ConfigurationError(reason, "Choose a folder that you may write to.") from None
    kept = [name for name in files if name not in written]
    if as_json:
        print_json({"written": written, "kept": kept})
        return
    for name in written:
        print_line(f"Wrote {name}.")
    for name in kept:
        print_line(f"{name} was there before and is unchanged.")
    print_line(
        "Next: `starling server enable NAME` for more servers of mcp.json, then `starling doctor` and `starling up`."
    )
