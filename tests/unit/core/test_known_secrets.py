"""Known secrets in texts: every kind in every embedding."""

import asyncio
from time import process_time, thread_time

import pytest
from pydantic import SecretStr

from starling.core.json import strings_in, with_strings
from starling.core.secrets.known import HIDDEN, KnownSecrets, settings_secrets
from starling.core.settings.schema import ProviderSettings, Settings
from tests.support.secret_embeddings import EMBEDDINGS, SECRETS


def unwrapped(text: str) -> str:
    return "".join(text.replace("\\n", "").split())


@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("kind", SECRETS)
def test_secret_is_replaced_in_every_embedding(kind: str, embedding: str) -> None:
    secrets = KnownSecrets.of(SECRETS)
    text = f"before {EMBEDDINGS[embedding](SECRETS[kind])} after"

    masked = secrets.mask(text)

    assert HIDDEN in masked
    assert (masked.startswith("before "), masked.endswith(" after")) == (True, True)
    assert not KnownSecrets.of({kind: SECRETS[kind]}).names_in(masked)
    assert unwrapped(SECRETS[kind]) not in unwrapped(masked)
    assert kind in secrets.names_in(text)


async def test_cost_of_many_secrets_in_many_texts_grows_with_their_number() -> None:
    secrets = KnownSecrets.of({"token": "tokentok"})

    async def seconds(count: int) -> float:
        begun = process_time()
        masked = await secrets.mask_all(["tokentok"] * count)
        took = process_time() - begun
        assert masked == [HIDDEN] * count
        return took

    # the least of three: processor time of other threads, and of a collection of garbage, counts too
    few, many = [min([await seconds(count) for _ in range(3)]) for count in (2_000, 16_000)]

    assert many < 24 * few  # eight times the texts; each with each would be 64 times


@pytest.mark.parametrize("kind", SECRETS)
async def test_secret_that_is_split_over_texts_is_replaced_in_each(kind: str) -> None:
    secret = SECRETS[kind]
    half = len(secret) // 2

    first, second, third = await KnownSecrets.of(SECRETS).mask_all([f"a {secret[:half]}", f"{secret[half:]} b", "c"])

    assert (first, second, third) == (f"a {HIDDEN}", f"{HIDDEN} b", "c")


def test_text_without_a_secret_is_unchanged() -> None:
    text = "Nothing here: \\n, the right horse, k7Qw, https://shop.example/?a=b\n" * 3

    assert KnownSecrets.of(SECRETS).mask(text) == text
    assert KnownSecrets.of({"short": "abcdefg"}).mask("abcdefg") == "abcdefg"
    assert KnownSecrets().mask(text) == text


def test_secret_across_the_parts_of_a_long_text_is_replaced() -> None:
    secrets = KnownSecrets.of({"k": SECRETS["aws"]})

    for before in range(65_500, 65_540):
        assert secrets.mask("y" * before + SECRETS["aws"] + "z") == "y" * before + HIDDEN + "z"


@pytest.mark.parametrize("left", [15, 25, 35])
def test_beginning_of_a_secret_at_a_cut_is_replaced(left: int) -> None:
    secret = SECRETS["aws"]

    masked = KnownSecrets.of({"k": secret}).mask_beginning(f"its last line: {secret[: max(left, 20)]}")

    assert masked == f"its last line: {HIDDEN}"
    assert KnownSecrets.of({"k": secret}).mask_beginning("its last line: wJal") == "its last line: wJal"


async def test_long_text_leaves_time_for_other_tasks() -> None:
    longest, ended = 0.0, False

    async def look() -> None:
        nonlocal longest
        while not ended:
            begun = thread_time()
            await asyncio.sleep(0)
            longest = max(longest, thread_time() - begun)

    looking = asyncio.create_task(look())
    text = "some words of a result, " * 100_000
    (masked,) = await KnownSecrets.of(SECRETS).mask_all([f"{text}{SECRETS['jwt']}"])
    ended = True
    await looking

    assert masked == f"{text}{HIDDEN}"
    assert longest < 1.0


def test_settings_give_their_secrets_by_name_and_passwords_in_addresses() -> None:
    settings = Settings(
        database_url=SecretStr("postgresql://user:p%40ssword1@db/x"),
        openai_base_url="https://me:inaddress99@models.example/v1",
        providers={"own": ProviderSettings(base_url="http://x", api_key=SecretStr("provider-key-1"))},
    )

    found = settings_secrets(settings)

    assert found["database_url"] == "postgresql://user:p%40ssword1@db/x"
    assert found["openai_base_url"] == "inaddress99"
    assert found["providers.own.api_key"] == "provider-key-1"
    assert KnownSecrets.of(found).mask("p@ssword1 p%40ssword1") == f"{HIDDEN} {HIDDEN}"


def test_strings_of_a_json_value_are_replaced_in_place() -> None:
    value = {"a": ["b", 1, None, {"c": "d"}], "e": True}

    strings = list(strings_in(value))

    assert strings == ["a", "b", "c", "d", "e"]
    assert with_strings(value, iter(text.upper() for text in strings)) == {"A": ["B", 1, None, {"C": "D"}], "E": True}
