"""The built-in embeddings: vectors of the package's own weights, without a network."""

import asyncio
import math
import subprocess
import sys
from itertools import pairwise

import pytest

from starling.core.errors import ConfigurationError
from starling.infra.embeddings import static_vectors
from starling.infra.embeddings.static_vectors import StaticEmbedder


def similarity(one: str, other: str) -> float:
    first, second = asyncio.run(StaticEmbedder().embed([one, other]))
    return sum(a * b for a, b in zip(first, second, strict=True))


def test_vectors_have_256_dimensions_and_length_1() -> None:
    (vector,) = asyncio.run(StaticEmbedder().embed(["What time is it in Lima?"]))

    assert (len(vector), vector.typecode) == (256, "f")
    assert math.isclose(math.hypot(*vector), 1, rel_tol=1e-3)


def test_texts_of_like_meaning_are_nearer_than_others() -> None:
    alike = similarity("How is the weather tomorrow?", "Will it rain?")

    assert alike > similarity("How is the weather tomorrow?", "List the commits of the repository")


def test_text_without_a_token_is_all_zeros() -> None:
    (vector,) = asyncio.run(StaticEmbedder().embed([""]))

    assert set(vector) == {0.0}


def test_each_text_has_the_vector_that_it_has_alone() -> None:
    texts = [f"text number {number}" for number in range(300)]

    together = asyncio.run(StaticEmbedder().embed(texts))

    alone = asyncio.run(StaticEmbedder().embed(texts[-1:]))
    assert (together[-1], len(together)) == (alone[0], 300)
    assert all(one != other for one, other in pairwise(together))


def test_missing_package_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(_: str) -> None: ...

    monkeypatch.setattr(static_vectors, "find_spec", not_found)
    static_vectors._token_vectors.cache_clear()  # pyright: ignore[reportPrivateUsage]

    with pytest.raises(ConfigurationError, match="STARLING_EMBEDDINGS"):
        asyncio.run(StaticEmbedder().embed(["text"]))


def test_embedding_imports_no_code_of_the_package_and_no_http_client() -> None:
    program = (
        "import asyncio, sys; from starling.infra.embeddings.static_vectors import StaticEmbedder;"
        "asyncio.run(StaticEmbedder().embed(['text']));"
        "print({'wordllama', 'requests', 'huggingface_hub', 'httpx'} & sys.modules.keys())"
    )

    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "set()"
