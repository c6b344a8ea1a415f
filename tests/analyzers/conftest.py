"""Runs made in memory, by tracelyze.testing."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

import pytest

from tracelyze.analyzers import context
from tracelyze.analyzers.recorded.run import Process
from tracelyze.analyzers.rule import Rule
from tracelyze.diagnosis import Finding
from tracelyze.testing import Workshop

_ONE_OF_SEVERAL = re.compile(r"(?<![\d.,])(?<!rank )\b1 (?!was|has|is|[mµn]s|times)[a-z]*[^\Ws]s\b")
_COMMAND = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:python|py-spy|torchrun|tracelyze|export|unset|ulimit|docker|nvidia-smi|cat|mount) ?"
)


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
def examples_are_code() -> Iterator[None]:
    """Every example of these tests is code that Python reads, or a command of a shell."""
    wrong: dict[str, str] = {}
    completed = context.completed

    def noted(finding: Finding, process: Process, rule: Rule) -> Finding:
        try:
            ast.parse(textwrap.dedent(finding.fix_code))
        except SyntaxError:
            if not _COMMAND.match(finding.fix_code):
                wrong[finding.rule] = finding.fix_code
        return completed(finding, process, rule)

    context.completed = noted
    yield
    context.completed = completed
    assert wrong == {}


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
