"""Texts in the form in which sentences and lines quote them."""


def one_line(text: str, limit: int) -> str:
    """Return a text on one line of at most `limit` characters; what is longer ends with `…`."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
