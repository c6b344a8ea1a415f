"""Runs made in memory, by tracelyze.testing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tracelyze.analyzers import context
from tracelyze.testing import Workshop

_ONE_OF_SEVERAL = re.compile(r"(?<![\d.,])(?<!rank )\b1 (?!was|has|is|ms|times)[a-z]*[^\Ws]s\b")


@pytest.fixture
def make() -> Workshop:
    """Makes processes and runs in memory."""
    return Workshop()


@pytest.fixture(autouse=True, scope="session")
def titles_fit() -> Iterator[None]:
    """Every finding of these tests has a title of at most 90 characters before the engine would have to cut it.

    Only the user's own names may be longer than that, and none of these tests has such names.
    """
    long: set[str] = set()
    fitted = context.fitted

    def noted(title: str) -> str:
        if len(title) > context.LONGEST_TITLE:
            long.add(title)
        return fitted(title)

    context.fitted = noted
    yield
    context.fitted = fitted
    assert not long


@pytest.fixture(autouse=True, scope="session")
def reasons_agree() -> Iterator[None]:
    """No reason of these tests counts one thing as several ("1 losses")."""
    wrong: set[str] = set()
    polished = context.sentence

    def noted(reason: str) -> str:
        if _ONE_OF_SEVERAL.search(reason):
            wrong.add(reason)
        return polished(reason)

    context.sentence = noted
    yield
    context.sentence = polished
    assert sorted(wrong) == []
