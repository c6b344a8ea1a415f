"""What can follow from what: the causes of each diagnosis, how soon it follows on them, and why.

`causality` explains findings by this table, and the pages of the rules print it. A row holds where the cause is found,
began no later than the effect, and, where the effect follows `AT_ONCE`, was last seen shortly before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.consequences import evaluation, gradients, losses, nonfinite, program
from tracelyze.analyzers.consequences.declaration import ANY_TIME as ANY_TIME
from tracelyze.analyzers.consequences.declaration import AT_ONCE as AT_ONCE
from tracelyze.analyzers.consequences.declaration import Consequence as Consequence
from tracelyze.analyzers.consequences.shared import ONLY_SLOWS as ONLY_SLOWS
from tracelyze.analyzers.consequences.shared import OPEN as OPEN
from tracelyze.analyzers.consequences.shared import SIZE_FOLLOWS as SIZE_FOLLOWS
from tracelyze.analyzers.consequences.shared import UNCLEARED as UNCLEARED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tracelyze.analyzers.rule import Declaration

CONSEQUENCES: Final = (*gradients.ROWS, *nonfinite.ROWS, *losses.ROWS, *evaluation.ROWS, *program.ROWS)


def causes_of(effect: str) -> Iterator[tuple[str, Consequence]]:
    """Each cause of a diagnosis with its row, in the order of the table."""
    return ((cause, row) for row in CONSEQUENCES if row.effect == effect for cause in row.causes)


def effects_of(cause: str) -> Iterator[tuple[str, Consequence]]:
    """Each diagnosis that can follow from this one with its row, in the order of the table."""
    return ((row.effect, row) for row in CONSEQUENCES if cause in row.causes)


def with_declared(rules: Iterable[Declaration]) -> dict[str, dict[str, Consequence]]:
    """Row by cause for each of the rules: the table, and what rules from outside declare of themselves."""
    return {
        rule.id: dict(causes_of(rule.id))
        | {cause: Consequence(rule.id, (cause,), "The rule declares it.") for cause in rule.consequence_of}
        for rule in rules
    }
