"""Repetition: a test makes a few rounds with the others, and the many that find rare races in `make soak`."""

from collections.abc import Sequence

import pytest


def rounds(usual: int | Sequence[int], soak: int | Sequence[int], name: str = "rounds") -> pytest.MarkDecorator:
    """Give a test its number of rounds (or its seeds, or seconds) as the argument `name`.

    It runs with the values of `usual` in every test run, and with those of `soak` under `make soak` alone.
    """
    always, soaked = ((value,) if isinstance(value, int) else value for value in (usual, soak))
    return pytest.mark.parametrize(name, [*always, *(pytest.param(value, marks=pytest.mark.soak) for value in soaked)])
