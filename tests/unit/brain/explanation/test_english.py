"""Lists of English words: what they find in English texts, and that they find nothing in others."""

import pytest

from brain.explanation.english import English, are_english

ENGLISH, FOREIGN = English(), English(by_default=False)


@pytest.mark.parametrize(
    ("text", "is_english"),
    [
        ("There is no flight LH544 today.", True),
        ("the café in Zürich is closed", True),
        ("Error executing tool gleis: Heute fährt kein Zug RE 50.", False),
        ("El puesto no tiene ningún error", False),
        ("Aucun résultat dans le dossier", False),
        ("在北京今天的天气", False),
    ],
)
def test_language_of_a_text_is_told_by_its_words_whatever_the_request_is_written_in(
    text: str, *, is_english: bool
) -> None:
    assert [English(default).reads(text) for default in (True, False)] == [is_english, is_english]


@pytest.mark.parametrize("text", ["Access denied", "offline", "404", ""])
def test_text_that_tells_no_language_counts_as_one_of_the_request(text: str) -> None:
    assert (ENGLISH.reads(text), FOREIGN.reads(text)) == (True, False)


@pytest.mark.parametrize(
    ("texts", "english"),
    [
        (["Weather Lima", "Weather Oslo"], True),
        (["Tolong cari harga tiket kereta ke Bandung besok pagi"], False),
        (["Buche zwei Plätze im ICE 71.", "Finde das Gleis."], False),
        (["Book seats.", "Find the gate of the flight to São Paulo."], True),
    ],
)
def test_request_is_english_if_its_words_and_those_of_its_tasks_are(texts: list[str], *, english: bool) -> None:
    assert are_english(texts) is english


@pytest.mark.parametrize(
    "text",
    [
        "Error: the price list is empty",
        "error - no reading",
        "error -32603",
        "Failed to open the door",
        "item coat not found",
        "permission denied",
    ],
)
def test_english_error_is_one_where_english_is_read_alone(text: str) -> None:
    assert ENGLISH.looks_like_error(text)


@pytest.mark.parametrize(
    "text",
    [
        "error-log: 3 logins",
        "0 errors were found in 12 chapters",
        "Error: ninguno, todo está en orden",
        "Fatal ist das nicht: alles läuft.",
        "El archivo no está vacío",
    ],
)
def test_result_that_speaks_of_errors_or_is_in_another_language_is_no_error(text: str) -> None:
    assert not ENGLISH.looks_like_error(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"error": "keine Verbindung"}',
        '{"status": "error", "message": "nicht gemessen"}',
        "HTTP 503",
        "404 Not Found",
        "status: 500",
        "Traceback (most recent call last):",
        "ValueError: nichts da",
        "java.io.IOException: Datei fehlt",
    ],
)
def test_error_as_programs_write_it_is_one_in_every_language(text: str) -> None:
    assert FOREIGN.looks_like_error(text)


def test_words_of_other_languages_that_english_lists_have_tell_nothing() -> None:
    painting = "Zuerst den Zaun lackieren, dann die Farbe holen. Parameter und Format sind egal, die Kasse ist offline."

    assert not ENGLISH.is_infrastructure(painting)
    assert not ENGLISH.is_about_values(painting)
    assert not ENGLISH.says_absent("El precio depende del peso y no hay nada, missing")
    assert list(ENGLISH.lacking_sentences(painting)) == []
    assert not ENGLISH.are_opposite("Das Tor ist closed und zu", "Das Tor ist zu")


def test_status_of_http_blames_the_service_in_every_language() -> None:
    assert FOREIGN.is_infrastructure("Die Antwort war HTTP 503, es ist nichts da.")


@pytest.mark.parametrize("value", ["<id>", "TBD", "???", "", "n/a", "{{order}}"])
def test_mark_for_a_missing_value_is_a_placeholder_in_every_language(value: str) -> None:
    assert FOREIGN.is_placeholder(value)


def test_words_for_a_missing_value_are_a_placeholder_in_english_alone() -> None:
    assert ENGLISH.is_placeholder("the result of task 2")
    assert not ENGLISH.is_placeholder("el resultado de la tarea 2")
