# ruff: noqa: RUF001, SIM905 - Cyrillic letters; lists of words
"""Long results of tools as they occur. Only its identifier distinguishes the item that decides from the others."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from uuid import UUID

WORDS = "payment invoice search login export cache stock mail report session billing catalog import backup".split()
_STATES = "open closed failed delayed shipped declined approved waiting cancelled done".split()
_HEADER = f"| name | state | kind | day | note | amount |\n|{' --- |' * 6}"
_SYLLABLES = ("ba tor vel ni qua zim lo ker", "grö ßen mü hle bär kä sche fluss", "ба тор вел ни зим ло кер пу")
_PROSE = {
    "english": "The office confirmed that {x} is {state} since {day} March, and note {note} has the reason.",
    "german": "Das Amt bestätigte, dass {x} seit dem {day}. März als {state} gilt; der Grund steht in Notiz {note}.",
    "russian": "В конторе подтвердили, что {x} с {day} марта имеет состояние {state}, причина указана в {note}.",
}
_OTHER = {
    "english": "It took {note} minutes until the people of the {word} understood the question.",
    "german": "Es dauerte {note} Minuten, bis die Leute vom {word} die Frage verstanden hatten.",
    "russian": "Прошло {note} минут, пока люди из {word} поняли вопрос.",
}


def _rare(rng: Random) -> str:
    return "".join(rng.choices(rng.choice(_SYLLABLES).split(), k=4)).capitalize()


def _digits(rng: Random, count: int) -> str:
    return str(rng.randrange(10 ** (count - 1), 10**count))


SHAPES: Mapping[str, Callable[[Random], str]] = {
    "order": lambda rng: f"ORD-{_digits(rng, 6)}",
    "uuid": lambda rng: str(UUID(int=rng.getrandbits(128), version=4)),
    "commit": lambda rng: f"{rng.getrandbits(40):010x}",
    "address": lambda rng: f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(1, 255)}",
    "mail": lambda rng: f"{_rare(rng)}.{rng.choice(WORDS)}@example.org".lower(),
    "path": lambda rng: f"/srv/{rng.choice(WORDS)}/{rng.choice(WORDS)}_{_digits(rng, 5)}.yaml",
    "class": lambda rng: f"com.example.{rng.choice(WORDS)}.{_rare(rng)}Service",
    "snake": lambda rng: f"{rng.choice(WORDS)}_{_rare(rng)}_limit".lower(),
    "number": lambda rng: _digits(rng, 8),
    "host": lambda rng: f"{rng.choice(WORDS)}-{_digits(rng, 4)}.eu-west.example.net",
    "rare word": _rare,
}


def _record(rng: Random, name: str) -> dict[str, str]:
    about = {"name": name, "state": rng.choice(_STATES), "kind": rng.choice(WORDS), "day": f"{rng.randrange(1, 31)}"}
    return about | {"note": _digits(rng, 6), "amount": f"{rng.randrange(10_000) / 100}"}


def _log_line(rng: Random, name: str) -> str:
    when = f"2026-03-{rng.randrange(1, 31):02}T{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}Z"
    what = f"{rng.choice(WORDS)}[{_digits(rng, 4)}] {name} {rng.choice(WORDS)} {rng.choice(_STATES)}"
    return f"{when} {rng.choice(['INFO', 'INFO', 'DEBUG', 'WARN'])} {what} note={_digits(rng, 6)}"


def _paragraph(language: str, rng: Random, name: str) -> str:
    sentences = [_PROSE[language], *[_OTHER[language]] * rng.randrange(1, 5)]
    rng.shuffle(sentences)
    values = {"x": name, "state": rng.choice(_STATES), "word": rng.choice(WORDS), "day": rng.randrange(1, 31)}
    return " ".join(sentence.format(note=_digits(rng, 6), **values) for sentence in sentences)


# One item; what is before, between and after the items.
KINDS: Mapping[str, tuple[Callable[[Random, str], str], str, str, str]] = {
    "log": (_log_line, "", "\n", "\n"),
    "json": (lambda rng, x: json.dumps(_record(rng, x), ensure_ascii=False), "[", ", ", "]"),
    "indented json": (lambda rng, x: json.dumps(_record(rng, x), indent=2, ensure_ascii=False), "[\n", ",\n", "\n]"),
    "csv": (lambda rng, x: ",".join(_record(rng, x).values()), "name,state,kind,day,note,amount\n", "\n", "\n"),
    "markdown": (lambda rng, x: f"| {' | '.join(_record(rng, x).values())} |", f"{_HEADER}\n", "\n", "\n"),
    **{language: (partial(_paragraph, language), "", "\n\n", "\n") for language in _PROSE},
}


def long_result(rng: Random, kind: str, shape: str, chars: int, name: str = "") -> tuple[str, str]:
    """Return a result of about `chars` characters, and its deciding item, which holds `name`, as up to three others."""
    make, before, between, after = KINDS[kind]
    items, deciding = list[str](), ""
    while sum(map(len, items)) + len(items) * len(between) < chars:
        items += [make(rng, SHAPES[shape](rng)) for _ in range(20)]
    for _ in range(rng.randrange(1, 5) if name else 0):  # the last one decides
        deciding = make(rng, name)
        items[rng.randrange(len(items))] = deciding
    return f"{before}{between.join(items)}{after}", deciding
