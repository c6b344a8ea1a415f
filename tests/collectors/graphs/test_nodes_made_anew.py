"""What is read off a graph does not depend on whether torch keeps the objects that stand for its nodes.

In older versions of torch (seen in 2.11, no longer in 2.13) such an object goes with its last reference, and the next
one may lie at its address: whoever remembers nodes by their addresses takes one for another. `Anew` does the same in
every torch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tests.collectors.conftest import sizes_are_told  # noqa: E402
from tracelyze.collectors.program.manual_updates import leaves  # noqa: E402
from tracelyze.collectors.signals.gradients.singular_operations import suspects  # noqa: E402
from tracelyze.collectors.signals.loss.loss import own_divisor  # noqa: E402
from tracelyze.collectors.signals.loss.nonfinite_operations import first_broken  # noqa: E402
from tracelyze.collectors.tensors import graphs, product_types, saved_values  # noqa: E402
from tracelyze.collectors.tensors.attention import masked_attention, softmax_dimension  # noqa: E402
from tracelyze.collectors.tensors.policies import choices, completions, ratios, terms, weights  # noqa: E402
from tracelyze.collectors.tensors.written_out import of_gradients, picked_classes, squashed_twice  # noqa: E402
from tracelyze.collectors.tensors.written_out.compared import compared  # noqa: E402
from tracelyze.collectors.tensors.written_out.errors import meeting  # noqa: E402
from tracelyze.collectors.tensors.written_out.likelihoods import likelihood  # noqa: E402

HOST = torch.device("cpu")
BATCH, CLASSES, IDS, LENGTH, WIDTH = 4, 5, 11, 6, 8


class Anew:
    """A node whose object is made anew whenever nobody holds the last one."""

    # Of a size that nothing else has, so that the next one takes the place of the last.
    __slots__ = ("__weakref__", "_known", "_node", *(f"_unused{number}" for number in range(40)))

    def __init__(self, node: Any, known: weakref.WeakValueDictionary[Any, Anew]) -> None:
        self._node, self._known = node, known

    def name(self) -> str:
        return str(self._node.name())

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        return tuple((self._of(one), place) for one, place in self._node.next_functions)

    def _of(self, node: Any) -> Any:
        known = None if node is None else self._known.get(node)
        if node is not None and known is None:
            known = self._known[node] = type(self)(node, self._known)
        return known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


class Untold(Anew):
    """One that does not tell the sizes of what its operation put out, as before torch 2.5."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name == "_input_metadata":
            raise AttributeError(name)
        return super().__getattr__(name)


def anew(root: Any, kind: type[Anew] = Anew) -> Anew:
    known: weakref.WeakValueDictionary[Any, Anew] = weakref.WeakValueDictionary()
    known[root] = first = kind(root, known)
    return first


@pytest.fixture(autouse=True)
def watched() -> None:
    saved_values.watch(torch)
    saved_values._used[:] = [False] * len(saved_values._used)
    torch.manual_seed(0)


def chance() -> Any:
    return nn.Linear(WIDTH, 1)(torch.randn(BATCH, WIDTH)).sigmoid().sigmoid()


def squashed() -> Any:
    yes, p = torch.ones(BATCH, 1), chance()
    return -(yes * torch.log(p + 1e-7) + (1 - yes) * torch.log(1 - p + 1e-7)).mean()


def error() -> Any:
    return ((nn.Linear(WIDTH, 1)(torch.randn(BATCH, WIDTH)) - torch.randn(BATCH)) ** 2).mean() / 3


def of_two() -> Any:
    given = torch.randn(BATCH, WIDTH)
    student, teacher = nn.Linear(WIDTH, CLASSES)(given), nn.Linear(WIDTH, CLASSES)(given)
    return -(teacher.softmax(1) * student.log_softmax(1)).sum(1).mean()


def text() -> Any:
    ids = torch.randint(0, IDS, (BATCH, LENGTH))
    seen = nn.Embedding(IDS, WIDTH)(ids)
    scores = (seen @ seen.transpose(1, 2)).masked_fill(~torch.ones(LENGTH, LENGTH).tril().bool(), -1e9)
    logs = nn.Linear(WIDTH, IDS)(seen + scores.softmax(-1) @ seen).log_softmax(-1)
    return -logs.gather(-1, ids.roll(-1, 1)[..., None]).mean()


def policy() -> Any:
    logs = nn.Linear(WIDTH, CLASSES)(torch.randn(BATCH, WIDTH)).log_softmax(-1)
    chosen = logs.gather(1, torch.randint(0, CLASSES, (BATCH, 1)))[:, 0]
    ratio, gain = (chosen - chosen.detach()).exp(), torch.randn(BATCH)
    gained = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
    return -gained + 0.1 * (logs.exp() * logs).sum(-1).mean()


def written() -> Any:
    logs = nn.Linear(WIDTH, CLASSES)(torch.randn(BATCH, LENGTH, WIDTH)).log_softmax(-1)
    chosen = logs.gather(-1, torch.randint(0, CLASSES, (BATCH, LENGTH, 1))).squeeze(-1)
    mask = (torch.arange(LENGTH) < torch.arange(3, 3 + BATCH)[:, None]).float()
    return -(chosen * torch.randn(BATCH, 1) * mask).sum()


def penalty() -> Any:
    inputs = torch.randn(BATCH, WIDTH, requires_grad=True)
    critic = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    slopes = torch.autograd.grad(critic(inputs).sum(), inputs, create_graph=True)
    of_gradients.mark(torch, slopes)
    return (slopes[0].norm(dim=1) - 1).square().mean() + critic(inputs).mean()


def broken() -> Any:
    return (nn.Parameter(torch.zeros(BATCH)).log() + F.relu(nn.Parameter(torch.ones(BATCH)))).mean()


LOSSES: dict[str, Callable[[], Any]] = {
    one.__name__: one for one in (chance, squashed, error, of_two, text, policy, written, penalty, broken)
}
READ: dict[str, Callable[[Any], Any]] = {
    "graph behind": lambda root: [len(one) for one in graphs.graph_behind(root, ("Log", "Exp"))],
    "leaves": lambda root: [tuple(one.shape) for one in leaves(root)],
    "squashed twice": squashed_twice.under_logarithm,
    "what made it": squashed_twice.made_from,
    "meeting": lambda root: _plain(meeting(torch, root), "operation", "given", "target", "side"),
    "compared": lambda root: [(one.given.name(), one.target.name(), *one[2:]) for one in compared(root)],
    "of gradients": of_gradients.is_loss,
    "divisor": lambda root: own_divisor(torch, root),
    "likelihood": lambda root: _plain(likelihood(torch, root), "classes", "targets"),
    "picked classes": lambda root: picked_classes.columns(torch, root, HOST),
    "products": lambda root: product_types.columns(torch, root, HOST),
    "masked attention": lambda root: masked_attention.columns(torch, root, HOST),
    "softmax dimension": lambda root: softmax_dimension.columns(torch, root, HOST),
    "terms": lambda root: _plain(terms.terms(torch, root), "weights", "products", "undetached"),
    "weights": lambda root: weights.columns(torch, root),
    "choices": lambda root: _plain(choices.choices(torch, root), "scores", "weights", "numbers"),
    "completions": lambda root: completions.facts(torch, root),
    "ratio": lambda root: ratios.ratio(torch, root) is not None,
    "ids": lambda root: sorted(graphs.Graph(root).nodes.values()),
    "not finite": lambda root: [(one.what, one.kind) for one in first_broken(torch, root)],
    "singular": lambda root: suspects(root, set(), {id(one) for one in leaves(root)}),
}


def _plain(found: Any, *names: str) -> Any:
    return None if found is None else [getattr(found, name) for name in names]


@pytest.mark.parametrize("name", READ)
def test_the_same_is_read_of_nodes_that_are_made_anew(name: str) -> None:
    for loss in LOSSES.values():
        root = loss().grad_fn
        with torch.no_grad():
            assert repr(READ[name](anew(root))) == repr(READ[name](root))


def test_sizes_that_only_what_was_saved_tells() -> None:
    """None or the true ones, and those of every fourth operation at least; what reads them raises nothing."""
    for name, loss in LOSSES.items():
        root = loss().grad_fn
        nodes, _ = graphs.graph_behind(root, ())
        told = [saved_values.sizes_of(anew(node, Untold)) for node in nodes]
        if hasattr(root, "_input_metadata"):
            assert [one for one in told if one is not None] == [
                saved_values.sizes_of(node) for node, one in zip(nodes, told, strict=True) if one is not None
            ]
        assert sum(one is not None for one in told) >= len(nodes) / 4, name
        with torch.no_grad():
            for way, read in READ.items():
                same = way in ("squashed twice", "what made it", "likelihood", "terms", "weights")
                assert repr(read(anew(root, Untold))) == repr(read(root)) or not same, (name, way)


def test_there_is_something_to_read() -> None:
    """Every way of reading finds something in one of these losses, so that two empty answers prove nothing."""
    losses = [(name, loss()) for name, loss in LOSSES.items()]
    with torch.no_grad():
        for name, read in READ.items():
            told = sizes_are_told() or name not in ("products", "softmax dimension")
            assert len({repr(read(loss.grad_fn)) for _, loss in losses}) > 1 or not told, name
