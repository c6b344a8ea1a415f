"""What a policy was given when it acted and in training, row by row: is it trained on what it acted upon last?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tracelyze.collectors.program.call import Call
from tracelyze.collectors.storage.pending import PendingValues
from tracelyze.collectors.tensors.readback import Readback

MOST = 512  # rows of an input that are looked at
NUMBERS = 256  # of a row that are looked at
MOST_KNOWN = 20_000  # rows that are remembered
SAME = 1e-6  # between numbers of the same weights, one of which was read from a device, in single precision
WIDTHS = 2  # widths of what the policy acted upon, to which rows in training are cut


class Rows:
    """A number for each row of one input, on its way to the host."""

    def __init__(self, torch: Any, rows: Any, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.width = int(rows.shape[1])
        self.whole = _read(torch, rows)
        self.integer = not rows.is_floating_point()
        self.begins: dict[int, Numbers] = {}  # the same for the beginnings of the rows, by their width


class Numbers:
    """Numbers on their way to the host."""

    def __init__(self, torch: Any, values: Any) -> None:
        self._read: list[float] = []
        self.readback = Readback(torch, values, lambda _row, read: self._read.extend(read))

    def values(self) -> list[float]:
        """What they are, once they have arrived."""
        if not self._read:
            self.readback.fill({})
        return self._read


class GivenRows:
    """The inputs of calls between two backwards of a policy, and the rows that it was trained on so far."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._given: dict[int, Rows] = {}  # by the number of the call
        self._widths: list[int] = []
        self._known: set[float] = set()
        self._trained: list[Numbers] = []  # that are not in `_known` yet

    def given(self, call: Call, given: Any) -> None:
        """A call was given this tensor: vectors, each a row; ids, each sequence one; images, each one."""
        if not given.dim() or not given.numel() or given.is_complex():
            return
        if given.is_floating_point() and given.dim() <= 3:
            rows = given.detach().reshape(-1, given.shape[-1])[:MOST]
        else:
            rows = given.detach()[:MOST].reshape(min(len(given), MOST), -1)
        found = self._given[call.number] = Rows(self._torch, rows, tuple(given.shape))
        for width in self._widths:
            if found.integer and width < found.width:
                found.begins[width] = _read(self._torch, rows[:, :width])
        if found.width not in self._widths and len(self._widths) < WIDTHS:
            self._widths.append(found.width)

    def gives_no_samples(self, call: Call, policy: Call) -> bool:
        """Whether a model was given sequences of the whole length: it says how likely they are, and writes none."""
        one, other = self._given.get(call.number), self._given.get(policy.number)
        return one is None or other is None or (one.integer and other.integer and one.width == other.width > 1)

    def compared(self, policy: Call, acted: Sequence[Call], states: Sequence[Numbers] = ()) -> Comparison:
        """What the policy is trained on, beside what it acted upon. `states`: numbers that change with the weights of a
        copy that acted, and of the policy."""
        earlier, self._trained = self._trained, []
        pairs = []
        trained, others = self._given.get(policy.number), [self._given.get(call.number) for call in acted]
        for one in others:
            if one is not None and trained is not None and one.integer == trained.integer:
                same = trained.whole if one.width == trained.width else trained.begins.get(one.width)
                pairs += [] if same is None else [(one.whole, same)]
        as_trained = trained is not None and all(one is not None and one.shape == trained.shape for one in others)
        return Comparison(self._known, earlier, trained, pairs, as_trained, states)

    def trained(self, calls: Iterable[Call]) -> None:
        """A backward ran through these calls of the policy."""
        self._trained += [self._given[call.number].whole for call in calls if call.number in self._given]

    def drop(self, call: Call) -> None:
        """This call is of no use any more."""
        self._given.pop(call.number, None)

    def forget(self) -> None:
        """What was given before is of no use any more."""
        self._given.clear()


class Comparison:
    """Rows that the policy is trained on, beside those that it acted upon, when all of them are on the host."""

    def __init__(
        self,
        known: set[float],
        earlier: list[Numbers],
        trained: Rows | None,
        pairs: list[tuple[Numbers, Numbers]],
        as_trained: bool,
        states: Sequence[Numbers],
    ) -> None:
        self._known, self._earlier, self._trained, self._pairs = known, earlier, trained, pairs
        self._as_trained, self._states = as_trained, states

    def after(self, other: PendingValues) -> PendingValues:
        """`other`, once these rows have arrived as well."""
        return _Both(self, other)

    def arrived(self) -> bool:
        """Whether all is on the host."""
        waited = [*self._states, *self._earlier, *[one for pair in self._pairs for one in pair]]
        waited += [] if self._trained is None else [self._trained.whole]
        return all(one.readback.arrived() for one in waited)

    def facts(self) -> dict[str, Any]:
        """Which share of the rows was trained on before, and which was acted upon, None where that is not known; and
        whether all that was acted upon had the shape of what is trained on, as what a loss is compared with has."""
        for one in self._earlier:
            if len(self._known) > MOST_KNOWN:
                self._known.clear()
            self._known.update(one.values())
        rows = [] if self._trained is None else self._trained.whole.values()
        reused = sum(row in self._known for row in rows) / len(rows) if rows else None
        by_width: dict[int, tuple[set[float], list[float]]] = {}
        for acted, same in self._pairs:
            by_width.setdefault(id(same), (set(), same.values()))[0].update(acted.values())
        shares = [sum(row in given for row in begins) / len(begins) for given, begins in by_width.values()]
        found = {"reused": reused, "met": max(shares, default=None), "as_trained": self._as_trained}
        if self._states:
            copy, own = (one.values()[0] for one in self._states)
            found |= {"state": copy, "same": math.isclose(copy, own, rel_tol=SAME)}
        return found


class _Both:
    def __init__(self, rows: Comparison, other: PendingValues) -> None:
        self._rows, self.fill = rows, other.fill
        self._other = other

    def arrived(self) -> bool:
        return self._other.arrived() and self._rows.arrived()


def _read(torch: Any, rows: Any) -> Numbers:
    """A number for each row that is hardly that of another one: its product with a fixed vector."""
    return Numbers(torch, projected(torch, rows).float())


def projected(torch: Any, rows: Any) -> Any:
    """The product of each row, or of numbers spread over a long one, with a fixed vector."""
    chosen = rows[:, :: math.ceil(rows.shape[1] / NUMBERS)].double()
    weights = torch.arange(1, chosen.shape[1] + 1, dtype=torch.float64, device=rows.device).mul(0.7).cos()
    return chosen @ weights
