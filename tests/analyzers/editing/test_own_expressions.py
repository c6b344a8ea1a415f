"""Examples that keep the script's own expressions, so that whoever pastes them loses nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import applied, sites_of
from tracelyze.analyzers.rules.ending.stops_short import own_iterators
from tracelyze.analyzers.script.editing import own_expressions


def placed(make: Any, source: str, text: str) -> tuple[Any, Any]:
    process = make.process(sites=sites_of(source, attention=text))
    return process, process.site(1)


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("rng = np.random.RandomState(self.seed + idx)", "rng = np.random.RandomState({seed})"),
        ("gen = np.random.default_rng(index)", "gen = np.random.default_rng({seed})"),
        ("rng = random.Random(i * 7)", "rng = random.Random({seed})"),
        ("g = torch.Generator().manual_seed(i)", "g = torch.Generator().manual_seed({seed})"),
        ("rng = np.random.Generator(np.random.PCG64(i))", "rng = np.random.Generator(np.random.PCG64({seed}))"),
        ("rng = self.generator_of(i)", None),
    ],
)
def test_a_generator_stays_one_of_its_kind(make, line: str, example: str | None) -> None:
    _, place = placed(make, f"def get(self, i):\n    {line}\n", line)
    wanted = example and example.format(seed=own_expressions.SEED)
    assert own_expressions.seeded_by_torch(place) == wanted


@pytest.mark.parametrize(
    ("softmax", "mask", "example"),
    [
        ("w = s.softmax(-1)", "w = w.masked_fill(~mask[:, None, None], 0.0)", "~mask[:, None, None]"),
        ("w = F.softmax(s, dim=-1)", "w = w.masked_fill(keep.unsqueeze(1) == 0, 0)", "keep.unsqueeze(1) == 0"),
        ("att = torch.softmax(s, -1)", "att = att * mask[:, None]", "mask[:, None] == 0"),
        ("w = s.softmax(-1)", "w *= self.tril[:t, :t]", "self.tril[:t, :t] == 0"),
        ("w = s.softmax(-1)", "w = w * keep[:, None, None, :].to(w.dtype)", "keep[:, None, None, :] == 0"),
        ("w = s.softmax(-1)", "w = w * self.keep.float()", "self.keep == 0"),
        ("w = s.softmax(-1)", "w *= keep.unsqueeze(1).unsqueeze(-2).float()", "keep.unsqueeze(1).unsqueeze(-2) == 0"),
        ("w = s.softmax(-1)", "w = w * keep.sum(1)", None),
        ("w = s.softmax(-1)", "w = self.drop(w)", None),
        ("w = (q @ k).softmax(-1)", "w = w * mask", None),  # the scores have no name
    ],
)
def test_a_mask_keeps_its_shape(make, softmax: str, mask: str, example: str | None) -> None:
    process, place = placed(make, f"def attend(q, k, v):\n    {softmax}\n    {mask}\n    return w @ v\n", softmax)
    edit = own_expressions.mask_before_softmax(process, place)
    lowest = "torch.finfo(s.dtype).min" if "torch" in softmax else 'float("-inf")'
    masked = f"    s = s.masked_fill({example}, {lowest})"
    assert (edit and edit.added) == (example and [masked, f"    {softmax}"])
    assert edit is None or edit.removed == [f"    {softmax}", f"    {mask}"]


@pytest.mark.parametrize(
    ("below", "edited"),
    [
        (
            "self.seen = w\n    w = w * mask\n    return w @ v",
            "{masked}\n    {softmax}\n    self.seen = w\n    return w @ v",
        ),
        (
            "if mask is not None:\n        w = w * mask\n    return w @ v",
            "if mask is not None:\n        {masked}\n    {softmax}\n    return w @ v",
        ),
        ("if mask is not None:\n        w = w * mask\n        v = v.half()\n    return w @ v", None),
        ("if mask is not None:\n        w = w * mask\n    else:\n        w = w / 2\n    return w @ v", None),
        ("with torch.no_grad():\n        w = w * mask\n    return w @ v", None),
    ],
)
def test_what_stands_around_a_mask_behind_a_softmax_stays(make, below: str, edited: str | None) -> None:
    softmax = "w = torch.softmax(s, -1)"
    source = f"def attend(s, v):\n    {softmax}\n    {below}\n"
    process, place = placed(make, source, softmax)
    edit = own_expressions.mask_before_softmax(process, place)
    if edited is None:
        assert edit is None
    else:
        whole = edited.format(softmax=softmax, masked="s = s.masked_fill(mask == 0, torch.finfo(s.dtype).min)")
        assert applied(source, edit) == f"def attend(s, v):\n    {whole}\n"


@pytest.mark.parametrize(
    ("made", "loop", "kept"),
    [
        ("batches = map(prepare, loader)", "for x in batches:", "batches = map(prepare, loader)  # moved"),
        ("it = (b.to(device) for b in loader)", "for x, y in it:", "it = (b.to(device) for b in loader)  # moved"),
        ("stream = prefetch(", "for x in stream:", "stream = ...  # the line that makes it, moved"),
    ],
)
def test_an_iterator_is_made_anew_with_what_it_does(make, made: str, loop: str, kept: str) -> None:
    source = f"def train():\n    {made}\n    for epoch in range(9):\n        {loop}\n            step(x)\n"
    process, place = placed(make, source, loop)
    _, first, second, _ = own_iterators.made_anew(process, place).splitlines()
    assert first.strip().startswith(kept)
    assert second.strip() == loop
    line = own_iterators.made_at(process, place)
    assert line is not None
    assert (line.line, line.source) == (2, made)
    assert "the line that makes it" in own_iterators.made_anew(process, None)


EPOCHS = """
def train_one_epoch(model, batches):
    for x, y in batches:
        step(model(x), y)


def main():
    batches = iter(loader)
    for epoch in range(9):
        train_one_epoch(model, batches)
"""


@pytest.mark.parametrize(
    ("made", "line", "in_its_place"),
    [
        ("batches = iter(loader)", 7, "batches = loader"),
        ("batches = iter(loaders['train'])", 7, "batches = loaders['train']"),
        ("batches = map(prepare, iter(loader))", 7, None),  # a map, too, ends with its first epoch
        ("batches = prefetched(loader)", None, None),  # what asks the loader is not known
        ("batches = iter(loader); first = next(batches)", 7, None),  # which the loader itself would not give
    ],
)
def test_an_iterator_that_another_function_makes(make, made: str, line: int | None, in_its_place: str | None) -> None:
    script = EPOCHS.lstrip().replace("batches = iter(loader)", made)
    sites = sites_of(script, exhausted="for x, y in batches:", loader=made)
    for row in sites:
        row["function"] = "train_one_epoch" if row["line"] < 6 else "main"
    at = {row["role"]: row["site"] for row in sites}
    feeding = {"loader": 1, "site": at["loader"]}
    process = make.process(make.steps() | {"loader": [1] * 400}, sites=sites, loaders=[feeding])
    asked = process.site(at["exhausted"])
    found = own_iterators.made_at(process, asked)
    assert (found and found.line) == line
    edit = own_iterators.loader_in_its_place(process, asked)
    assert (edit and edit.added) == (in_its_place and [f"    {in_its_place}"])
    other = make.process(make.steps() | {"loader": [0] * 400}, sites=sites, loaders=[feeding])
    assert own_iterators.made_at(other, asked) is None, "the iterator of a loader that feeds no step"


@pytest.mark.parametrize(
    ("line", "size", "cut"),
    [
        ("yield epoch, x[a:b], y[a:b]", "x", "yield epoch, x[order[a:b]], y[order[a:b]]"),
        ("xb, yb = X[i : i + n], Y[i : i + n]", "X", "xb, yb = X[order[i : i + n]], Y[order[i : i + n]]"),
        ("yield self.x[a:b]", "self.x", "yield self.x[order[a:b]]"),
        ("for i in range(0, len(x), 32):", "x", None),
        ("yield x[:, 1:]", "x", None),
        ("yield x[a:b], y[a:b, 0]", "x", None),  # which of both dimensions is that of the samples?
    ],
)
def test_batches_are_cut_from_a_new_order(make, line: str, size: str, cut: str | None) -> None:
    _, place = placed(make, f"def f(x, y):\n    {line}\n", line)
    head = f"order = torch.randperm(len({size}))  # anew for every epoch, before its first batch\n"
    assert own_expressions.in_a_new_order(place) == head + (f"...\n{cut}" if cut else "x, y = x[order], y[order]")


def test_an_order_that_is_counted_is_drawn(make: Any) -> None:
    _, place = placed(make, "def f():\n    order = torch.arange(len(data))\n", "order =")
    assert own_expressions.in_a_new_order(place).startswith("order = torch.randperm(len(data))  # anew")
    _, place = placed(make, "def f():\n    order = np.arange(n)\n", "order =")
    assert own_expressions.in_a_new_order(place).startswith("order = np.random.permutation(n)  # anew")
