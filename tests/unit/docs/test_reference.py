"""The pages of docs/reference are what the code gives."""

from scripts import reference


def test_pages_of_the_reference_are_what_the_code_gives() -> None:
    for name, page in reference.pages():
        assert (reference.FOLDER / f"{name}.md").read_text("utf-8") == page, "run `make reference`"
