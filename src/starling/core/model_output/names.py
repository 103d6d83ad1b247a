"""Names that models write for agents and tools, resolved where only one can be meant."""

import difflib
from collections.abc import Iterable, Mapping

_SEPARATORS = str.maketrans("", "", "-_./: `'\"\t\n")
_NAMESPACES = ("functions.", "function.", "tools.", "tool.", "default_api.")  # that models put before any name
_METHOD = ".call"  # that Llama puts behind a name
_NEAR = 3


def plain_name(name: str) -> str:
    """Return `name` without case, separators and quotes."""
    return name.translate(_SEPARATORS).casefold()


def aliases(names: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the name of each alias in its plain form; an alias of two names is left out.

    `names` has the aliases of each name. A name itself counts before the aliases of others.
    """
    found: dict[str, set[str]] = {}
    for name, others in names.items():
        for other in others:
            found.setdefault(plain_name(other), set()).add(name)
    own: dict[str, set[str]] = {}
    for name in names:
        own.setdefault(plain_name(name), set()).add(name)
    return {alias: min(meant) for alias, meant in (found | own).items() if alias and len(meant) == 1}


def resolve(written: str, known: Mapping[str, str]) -> str | None:
    """Return the name that `written` means, None where it could mean none or several. `known` is from `aliases`."""
    for namespace in ("", *_NAMESPACES):
        if written.startswith(namespace) and (name := known.get(plain_name(written[len(namespace) :]))):
            return name
    return resolve(written.removesuffix(_METHOD), known) if written.endswith(_METHOD) else None


def near_matches(written: str, names: Iterable[str]) -> list[str]:
    """Return the names most like `written`, best first; if none is alike as a whole, those with a word in common."""
    by_plain = {plain_name(name): name for name in names}
    if alike := difflib.get_close_matches(plain_name(written), by_plain, n=_NEAR, cutoff=0.6):
        return [by_plain[plain] for plain in alike]
    words = {word for word in _words(written) if len(word) > 1}
    shared = [name for name in by_plain.values() if words & _words(name)]
    return sorted(shared, key=lambda name: -len(words & _words(name)))[:_NEAR]


def _words(name: str) -> set[str]:
    return set("".join(sign if sign.isalnum() else " " for sign in name.casefold()).split())
