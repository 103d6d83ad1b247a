"""Documents of the MCP registry (`server.json`) as entries of an `mcpServers` document, with pinned versions.

https://github.com/modelcontextprotocol/registry/tree/main/docs/reference/server-json; schemas 2025-07-09 to 2025-12-11.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import urlsplit

from mcp_gateway.configuration.servers import checked_server
from mcp_gateway.configuration.stdio_over_http import VARIABLES
from starling.core.errors import ConfigurationError
from starling.core.json import strings_in
from starling.core.settings.schema import secret_variables

type _Document = Mapping[str, Any]

_UPPER: Final = re.compile(r"[A-Z]")
_TEMPLATE: Final = re.compile(r"\{([A-Za-z0-9_.-]+)\}")
_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_A_VARIABLE: Final = re.compile(r"[^A-Za-z0-9]+")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IDENTIFIER: Final = {
    "npm": re.compile(r"(?:@[a-z0-9][a-z0-9._~-]*/)?[a-z0-9][a-z0-9._~-]*", re.IGNORECASE),
    "pypi": re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?", re.IGNORECASE),
}
_EXACT: Final = {  # what npm and uv take for one version, not for a range or a tag
    "npm": re.compile(r"v?\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?"),
    "pypi": re.compile(  # a pre-release, a post-release and a development release at most
        r"v?(?:\d+!)?\d+(?:\.\d+)*(?:[-_.]?(?:a|b|c|rc|alpha|beta|pre|post|dev|r)[-_.]?\d*){0,3}(?:\+[\w.]+)?"
    ),
}
_REGISTRY: Final = {"npm": "npmjs", "pypi": "pypi"}  # the domain of the registry that the runners ask
_TYPES: Final = {"streamable-http": "http", "streamable": "http", "http": "http", "sse": "sse"}
_NEEDLESS: Final = ("-y", "--yes")  # of npx, which is called so in any case


@dataclass(slots=True)
class RegistryEntry:
    """What becomes of one document: a server's name and configuration, or the `fault` that keeps it out.

    `required` are the variables of the platform's environment that the configuration refers to, with what the document
    says of them. All texts are of one line.
    """

    document: str  # its name and version
    name: str
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    required: dict[str, str] = field(default_factory=dict[str, str])
    fault: str = ""


def read_registry_documents(
    text: str, source: str, *, name: str | None = None, remote: bool = False
) -> list[RegistryEntry]:
    """Return an entry for each document of a text: a document, an answer of a registry's API, or a list of either.

    Packages are preferred to addresses, with `remote` the other way. `name` is the server's instead of its document's.
    Raises ConfigurationError if there is no document, or a `name` for several.
    """
    try:
        found = list(_documents(json.loads(text)))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{source} is not JSON: {error}.", "Give the content of a `server.json`.") from None
    if not found:
        raise ConfigurationError(
            f"{source} has no document of an MCP registry.", "Give the content of a `server.json`."
        )
    if name is not None and len(found) > 1:
        raise ConfigurationError(f"{source} has {len(found)} documents, and a name is for one.", "Leave `--name` out.")
    return [_entry(document, name, remote=remote) for document in found]


def _documents(found: Any) -> Iterator[_Document]:
    match found:
        case list():
            for each in cast("list[Any]", found):
                yield from _documents(each)
        case {"servers": list()}:
            yield from _documents(found["servers"])
        case {"server": dict()}:
            yield from _documents(found["server"])
        case {"name": str()}:
            yield cast("_Document", found)
        case _:
            pass


def _entry(document: _Document, name: str | None, *, remote: bool) -> RegistryEntry:
    own = str(document["name"])
    detail: _Document = _of(document, "versionDetail") or {}
    version = document.get("version") or detail.get("version") or ""
    if name is None:
        name = _NOT_A_NAME.sub("-", own.rpartition("/")[2]).strip("-")[:48]
    entry = RegistryEntry(_one_line(f"{own} {version}"), name)
    faults: list[str] = []
    offers = [(_from_package, one) for one in _list(document, "packages")]
    addresses = [(_from_address, one) for one in _list(document, "remotes")]
    for make, offer in addresses + offers if remote else offers + addresses:
        inputs = _Inputs(entry.name)
        try:
            config = make(offer, inputs)
            checked_server(entry.name, config)
            for text in strings_in(config):
                _check_text(text, inputs.required)
        except ConfigurationError as error:
            faults.append(error.message.rstrip("."))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            faults.append(f"it is not as the schema says: {error}")
        else:
            entry.config, entry.required = config, inputs.required
            return entry
    entry.fault = _one_line("; ".join(faults)) or "it offers neither a package nor an address"
    return entry


def _check_text(text: str, required: Iterable[str]) -> None:
    """Refuse a text of a configuration that refers to what the plan doesn't list, or would change lines of the plan."""
    if text.count("${") > sum(text.count(f"${{{variable}}}") for variable in required):
        raise ConfigurationError(f"{text!r} refers to a variable of this machine")
    if not text.isprintable():
        raise ConfigurationError(f"{text!r} has a line break or another control character")


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def _from_package(package: _Document, inputs: "_Inputs") -> dict[str, Any]:
    kind, identifier = _of(package, "registryType"), str(package.get("identifier") or "")
    if kind not in _IDENTIFIER:
        raise ConfigurationError(f"packages of the type {kind} can't be run here, only npm and pypi")
    version, base = str(package.get("version") or ""), str(_of(package, "registryBaseUrl") or "")
    if not _IDENTIFIER[kind].fullmatch(identifier):
        raise ConfigurationError(f"{identifier!r} is not the name of a package of {kind}")
    if not _EXACT[kind].fullmatch(version):
        raise ConfigurationError(
            f"{identifier} has no pinned version but {version!r}, which may be another one tomorrow"
        )
    if base and _REGISTRY[kind] not in (urlsplit(base).hostname or "").split(".")[-2:-1]:
        raise ConfigurationError(f"{identifier} is in the registry {base}, which the runner does not ask")
    transport: _Document = package.get("transport") or {"type": "stdio"}
    if transport["type"] != "stdio":
        raise ConfigurationError(
            f"{identifier} is started as a server of its own ({transport['type']}), not over stdio"
        )
    options = [text for one in _list(package, "runtimeArguments") for text in inputs.argument(one)]
    if left := [option for option in options if option not in _NEEDLESS]:  # may choose other packages and registries
        raise ConfigurationError(f"{identifier} asks for the options {' '.join(left)}: add it by hand if you want them")
    arguments = [text for one in _list(package, "packageArguments") for text in inputs.argument(one)]
    version = version.removeprefix("v")
    command = ("npx", "-y", f"{identifier}@{version}") if kind == "npm" else ("uvx", f"{identifier}=={version}")
    env = {one["name"]: value for one in _list(package, "environmentVariables") if (value := inputs.variable(one))}
    return {"command": command[0], "args": [*command[1:], *arguments], **({"env": env} if env else {})}


def _from_address(remote: _Document, inputs: "_Inputs") -> dict[str, Any]:
    kind = str(remote.get("type") or _of(remote, "transportType"))
    if kind not in _TYPES:
        raise ConfigurationError(f"addresses of the type {kind} can't be used")
    url = inputs.filled(str(remote["url"]), remote)
    if not url.startswith(("https://", "http://")):
        raise ConfigurationError(f"{url!r} is not an HTTP address")
    headers = {one["name"]: value for one in _list(remote, "headers") if (value := inputs.header(one))}
    return {"type": _TYPES[kind], "url": url, **({"headers": headers} if headers else {})}


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Turns inputs of a document into texts of a configuration, and collects the variables that these refer to."""

    server: str
    required: dict[str, str] = field(default_factory=dict[str, str])

    def variable(self, given: _Document) -> str:
        """Return the value of an environment variable, empty where it is left out."""
        name = str(given["name"])
        if not _VARIABLE.fullmatch(name):
            raise ConfigurationError(f"{name!r} is not the name of a variable")
        value = self._value(given, name)
        if value and VARIABLES.fullmatch(name):
            raise ConfigurationError(f"the variable {name} could make it run something else")
        return value

    def header(self, given: _Document) -> str:
        """Return the value of a header, empty where it is left out."""
        return self._value(given, self._own(str(given["name"])))

    def argument(self, given: _Document) -> Sequence[str]:
        """Return what an argument adds to a command line."""
        flag = self.filled(str(given["name"]), {}) if given.get("type") == "named" else ""
        hint = flag or str(_of(given, "valueHint") or "argument")
        value = self._value(given, self._own(hint))
        if flag and value and _of(given, "format") == "boolean":
            return [flag] if value == "true" else []
        if flag:
            return [f"{flag}={value}"] if value else []
        return [value] if value else []

    def filled(self, text: str, given: _Document) -> str:
        """Return a text with its `{name}` replaced by values or references."""
        known: Mapping[str, _Document] = given.get("variables") or {}

        def replaced(found: re.Match[str]) -> str:
            name = found[1]  # a variable has no variables of its own, in which texts could grow without a limit
            return self._value({**known[name], "variables": None}, self._own(name)) if name in known else found[0]

        return _TEMPLATE.sub(replaced, text)

    def _value(self, given: _Document, variable: str) -> str:
        """Return the fixed value of an input, a reference to a variable if it is required, else its default."""
        fixed = given.get("value")
        default = given.get("default")
        if fixed is not None or default is not None:
            return self.filled(str(fixed if fixed is not None else default), given)
        if not _of(given, "isRequired"):
            return ""
        if variable.upper() in secret_variables():
            raise ConfigurationError(f"it would get {variable}, a secret of the platform itself")
        self.required[variable] = _one_line(given.get("description") or "")
        return f"${{{variable}}}"

    def _own(self, name: str) -> str:
        """Return the name of a variable for an input that has none."""
        return _NOT_A_VARIABLE.sub("_", f"{self.server}_{name.lstrip('-')}").strip("_").upper()


def _of(document: _Document, key: str) -> Any:
    """Return what is under a key, or under the key that schemas until 2025-07-09 have for it."""
    return document.get(key, document.get(_UPPER.sub(lambda found: f"_{found[0].lower()}", key)))


def _list(document: _Document, key: str) -> Sequence[_Document]:
    return _of(document, key) or ()
