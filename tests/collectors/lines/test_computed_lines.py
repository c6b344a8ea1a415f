"""Lines whose arithmetic decides: rounded, singular, sliced, cut, or without its graph; and what only looks like it."""

from __future__ import annotations

import pytest

from tests.collectors.conftest import codes
from tracelyze.collectors.program.lines import slices, slopes
from tracelyze.collectors.program.lines.computed import arrays, rounding
from tracelyze.collectors.program.lines.named import singular


@pytest.mark.parametrize(
    ("text", "rounds", "compares"),
    [
        ("return float(hits // n)", True, False),
        ("return [int(a / n) for a in hits]", True, False),
        ("return round(hits / n)", True, False),
        ("return sum(a == b for a, b in hits) / n", False, True),
        ("return hits / n", False, False),
    ],
)
def test_what_a_reward_is_made_by(text: str, rounds: bool, compares: bool) -> None:
    (function,) = [one for one in codes(f"def reward(hits, n):\n    {text}") if one.co_name == "reward"]
    assert (rounding.rounds(function), rounding.compares(function)) == ([2] * rounds, [2] * compares)


@pytest.mark.parametrize(
    ("text", "searches"),
    [
        ("return [bool(PATTERN.search(one)) for one in hits]", True),
        ("return re.fullmatch(r'.*', hits)", True),
        ("return [one.startswith('<answer>') for one in hits]", False),
    ],
)
def test_where_a_reward_looks_for_a_pattern(text: str, searches: bool) -> None:
    (function,) = [one for one in codes(f"def reward(hits, n):\n    {text}") if one.co_name == "reward"]
    assert rounding.searches(function) == [2] * searches


@pytest.mark.parametrize(
    ("text", "singular", "casts"),
    [
        ("y = np.log(x)", True, False),
        ("y = np.sqrt(x)", True, False),
        ("y = frame.pct_change()", True, False),
        ("y = torch.log(x)", False, False),  # of a tensor, which is known otherwise
        ("y = math.log(x)", False, False),
        ("y = x.astype(np.float32)", False, True),
        ("y = np.asarray(x, dtype=np.float32)", False, True),
        ("y = torch.zeros(3, dtype=torch.float32)", False, False),
    ],
)
def test_what_is_made_of_arrays(text: str, singular: bool, casts: bool) -> None:
    *_, function = codes(f"def f(x, frame):\n    {text}\n    return y")
    assert (arrays.singular(function), arrays.casts(function)) == ([2] * singular, [2] * casts)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("-torch.log(p)", True),
        ("p.log().mean()", True),
        ("x / x.sum()", True),
        ("(x ** 2).sum().sqrt()", True),
        ("(1 - p) ** self.gamma", True),
        ("p ** 0.5", True),
        ("x.var(0)", True),
        ("(p - x) ** 2 + x ** 2.0", False),
        ("x / 2.0", False),
        ("math.log(3) + np.sqrt(p)", False),
        ("self.log('loss', p)", False),
        ("x // p", False),
    ],
)
def test_what_may_have_no_finite_value(text: str, found: bool) -> None:
    *_, function = codes(f"def f(self, x, p):\n    y = x + p\n    return {text}")
    assert singular.singular(function) == [3] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("g = autograd.grad(score, x, torch.ones_like(score), retain_graph=True)[0]", True),
        ("(g,) = grad(score.sum(), x)", True),
        ("g = torch.autograd.grad(score.sum(), x, create_graph=True)[0]", False),
        ("g = torch.autograd.grad(score.sum(), x, **options)[0]", False),
        ("g = x.grad.norm()", False),
        ("g = jax.grad(score)(x)", False),
    ],
)
def test_gradients_that_are_taken_without_their_graph(text: str, found: bool) -> None:
    *_, function = codes(f"def penalty(x, score, options):\n    {text}\n    return (g.norm() - 1) ** 2")
    assert slopes.without_graph(function) == [2] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("labels = ids[1:]", True),
        ("y = {'input_ids': ids[:, :-1], 'labels': ids[:, 1:]}", True),
        ("labels[..., :-1] = ids[..., 1:]", True),
        ("y = ids[at + 1 : at + 1 + size]", True),
        ("labels = torch.roll(ids, -1, dims=1)", True),
        ("chunk = ids[at : at + size]", False),
        ("y = ids[1:5] + ids[:-1]", False),
        ("at = at + 1", False),
    ],
)
def test_lines_that_shift_by_one_position(text: str, found: bool) -> None:
    *_, function = codes(f"def f(ids, labels, at, size):\n    y = ids[:, 0]\n    {text}")
    assert slices.shifts(function) == [3] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("y = {'input_ids': ids[:most], 'labels': ids}", True),
        ("labels = (ids + ids)[: self.most]", True),
        ("labels = ids[:, :most]", True),
        ("ids, tgt = ids[:most], tgt[:most]", True),
        ("y = ([IGNORE] * 3 + ids)[:most]", True),
        ("y = ([-100] * 3 + ids)[: args['most']]", False),  # an item, not a name
        ("labels = ids[: len(rows)]", False),
        ("labels = ids[:7] + ids[most:]", False),
        ("rows = ids[:most]", False),  # it makes no labels
    ],
)
def test_lines_that_cut_to_a_length(text: str, found: bool) -> None:
    *_, function = codes(f"def f(self, ids, most, rows, args):\n    y = ids[:, 0]\n    {text}")
    assert slices.lengths(function) == [3] * found
