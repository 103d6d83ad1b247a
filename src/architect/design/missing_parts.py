"""The parts of a goal that a design leaves out: those that the designer names, and those that no search found."""

from collections.abc import Sequence

from architect.design.document import DesignDocument
from architect.design.selection import PartFit, Selection, name_of, shared_words, words_in_common
from starling.core.events.build_events import MissingPart
from starling.core.teams.building import Candidate

_NEAREST = 3


def missing_parts(
    document: DesignDocument, selection: Selection, candidates: Sequence[Candidate]
) -> tuple[MissingPart, ...]:
    """Return each part that nothing serves, with what came nearest.

    A part that the search found nothing for counts as served where a member with tools says that it does it, and the
    best candidate has at least a word of it: the designer reads more than the search.
    """
    found = {
        part.text: part.missing for number, part in enumerate(selection.parts, 1) if _is_open(number, part, document)
    }
    for text in filter(None, map(str.strip, document.missing)):
        part = max(selection.parts, key=lambda one: words_in_common(one.text, text), default=None)
        if part and words_in_common(part.text, text):
            found.setdefault(part.text, part.missing)
        else:
            found[text] = MissingPart(part=text, nearest=[name_of(one) for one in candidates[:_NEAREST]])
    return tuple(found.values())


def _is_open(number: int, part: PartFit, document: DesignDocument) -> bool:
    claimed = any(number in member.parts and (member.server or member.team) for member in document.members)
    named = part.best is not None and shared_words(part.text, part.best) > 0
    return part.fit == "none" and not (claimed and named)
