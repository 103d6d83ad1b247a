"""Regular expressions that are searched for in linear time: without look-around and back-references."""

from functools import lru_cache

from jsonschema_rs import RegexOptions, ValidationError, Validator, validator_for


@lru_cache(maxsize=1_024)
def _validator(pattern: str) -> Validator:
    return validator_for({"pattern": pattern}, pattern_options=RegexOptions())


def pattern_fault(pattern: str) -> str:
    """Return why a text can't be such an expression, nothing where it can."""
    try:
        _validator(pattern)
    except (ValidationError, ValueError):
        return f"{pattern!r} is no regular expression without look-around and back-references"
    return ""


def found_in(pattern: str, text: str) -> bool:
    """Whether the expression is found anywhere in a text."""
    return _validator(pattern).is_valid(text)
