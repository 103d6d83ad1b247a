"""Secrets of twenty kinds, and the ways in which a server may give one away."""

import html
import json
import re
import traceback
from base64 import b64encode, encodebytes, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----"


def _traceback(secret: str) -> str:
    try:
        raise ConnectionError(f"login with {secret} failed")
    except ConnectionError:
        return traceback.format_exc()


def _json_with(special: str, form: str, escaped: str) -> str:
    return "".join(form.format(ord(each)) if each in special else each for each in escaped)


SECRETS = {
    "letters": "correcthorse",
    "eight": "k7Qw!zRt",
    "openai": "sk-proj-4f9vNq7RZk2LmX8sTb1Y",
    "github": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "aws": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "slack": "xoxb-2048-4096-AbCdEfGhIjKlMnOp",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n",
    "pem": PEM,
    "hex": "9f86d081884c7d659a2feaa0c55ad015",
    "base64": "c2VjcmV0IHBhc3N3b3JkIQ==",
    "uuid": "3f2b8c1e-7d44-4f0a-9b61-2c5e8a7d9f10",
    "spaces": "four words of nonsense",
    "quotes": 'he said "no" & left\\now',
    "slashes": "a/b+c=d?e&f%20g",
    "unicode": "pässwörd-über-ß-æ",
    "emoji": "🔑open🔓sesame",
    "angle": "<token>&amp;'value'",
    "percent": "100%25 secret%2Fpart",
    "password": "postgres-Pa55:w0rd@home",
    "newline": "first-line\nsecond-line\nthird",
}
FILLER = "x" * 5
EMBEDDINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda secret: f"key={secret};",
    "base64": lambda secret: b64encode(secret.encode()).decode(),
    "base64 after one byte": lambda secret: b64encode(f"a{secret}{FILLER}".encode()).decode(),
    "base64 after two bytes": lambda secret: b64encode(f"ab{secret}{FILLER}".encode()).decode(),
    "url-safe base64": lambda secret: urlsafe_b64encode(f"{FILLER}{secret}".encode()).decode(),
    "base64 in lines": lambda secret: encodebytes(f"{FILLER * 9}{secret}{FILLER * 9}".encode()).decode(),
    "hex": lambda secret: secret.encode().hex(),
    "upper-case hex": lambda secret: f"0x{secret.encode().hex().upper()}",
    "URL": lambda secret: f"https://shop.example/?token={quote(secret, safe='')}&a=b",
    "URL in lower case": lambda secret: re.sub("%..", lambda found: found[0].lower(), quote(secret, safe="")),
    "form": lambda secret: f"a=b&token={quote_plus(secret)}",
    "JSON": lambda secret: json.dumps({"text": f"the key is {secret}"}),
    "JSON in JSON": lambda secret: json.dumps({"body": json.dumps({"key": secret}, ensure_ascii=False)}),
    "JSON of Go": lambda secret: _json_with("<>&", "\\u{:04x}", json.dumps({"key": secret})),
    "JSON of .NET": lambda secret: _json_with("<>&'\"+`", "\\u{:04X}", secret.replace("\\", "\\\\")),
    "HTML of Jinja": lambda secret: html.escape(secret).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
    "HTML with quotes": lambda secret: f"<p>{html.escape(secret, quote=False)}</p>",
    "HTML": lambda secret: f"<p>{html.escape(secret)}</p>",
    "traceback": _traceback,
    "split over lines": lambda secret: "\n".join(secret[at : at + 5] for at in range(0, len(secret), 5)),
}
