"""The pages of docs/reference are what the code gives."""

import pytest

from scripts import reference

PAGES = dict(reference.pages())


@pytest.mark.parametrize("name", PAGES)
def test_page_of_the_reference_is_what_the_code_gives(name: str) -> None:
    written = (reference.FOLDER / f"{name}.md").read_text("utf-8")

    assert written == PAGES[name], "run `make reference`"
