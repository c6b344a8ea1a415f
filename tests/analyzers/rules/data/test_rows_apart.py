"""What puts inputs beside targets that are not theirs: rows of another order, or numbers that are drawn anew."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers.script.datasets import rows_apart
from tracelyze.analyzers.script.datasets.targets import drawn_anew

DRAWN = "order = torch.randperm(len(labels), generator=gen)"
RANGE = "for lo in range(0, len(order) - size + 1, size):"
WRONG = "yield features[order[lo:lo + size]], adjacency[order[lo:lo + size]], labels[lo:lo + size]"
RIGHT = "yield features[order[lo:lo + size]], adjacency[order[lo:lo + size]], labels[order[lo:lo + size]]"


def process_of(make: Any, body: list[str], role: str = "yields", steps: Any = None) -> Any:
    """A process whose function of batches holds these lines, of which the last one has this role."""
    text = ["def minibatches(features, labels, size):", *(f"    {line}" for line in body)]
    site = {"site": 0, "role": role, "file": "train.py", "function": "minibatches", "line": 10 + len(body),
            "source": body[-1].strip(), "excerpt": "\n".join(text), "excerpt_line": 10}  # fmt: skip
    return make.process(steps, sites=[site])


@pytest.mark.parametrize(
    ("body", "line", "added"),
    [
        ([DRAWN, RANGE, f"    {WRONG}"], 13, f"        {RIGHT}"),
        (
            ["perm = np.random.permutation(n)", "for i in range(0, n, b):", "    idx = perm[i:i + b]",
             "    x, y = self.x[idx], self.y[i:i + b]", "    loss = criterion(model(x), y)"],
            14,
            "        x, y = self.x[idx], self.y[idx]",
        ),
        (
            ["rng.shuffle(rows)", "for i in range(0, n, b):", "    x = data[rows[i:i + b]]", "    y = target[i:i + b]",
             "    yield x, y"],
            14,
            "        y = target[rows[i:i + b]]",
        ),
    ],
)  # fmt: skip
def test_what_is_taken_by_position(make: Any, body: list[str], line: int, added: str) -> None:
    role = "training-call" if "model(" in body[-1] else "yields"
    found = rows_apart.of(process_of(make, body, role))
    assert found is not None
    assert (found.place.line, found.diff.added) == (line, [added])


@pytest.mark.parametrize(
    "body",
    [
        [DRAWN, RANGE, f"    {RIGHT}"],
        ["order = torch.arange(len(labels))", RANGE, f"    {WRONG}"],  # nothing is shuffled
        [DRAWN, RANGE, "    yield features[order[lo:lo + size]], labels[lo:hi]"],  # another piece
        [DRAWN, RANGE, "    idx = order[lo:lo + size]", "    x = features[idx]", "    train(x)",
         "for lo in range(0, n, size):", "    yield held_out[lo:lo + size]"],  # the loop of an evaluation
        [DRAWN, RANGE, "    yield features[order[lo:lo + size]], labels[lo:lo + size], weights[lo:lo + size]"],
    ],
)  # fmt: skip
def test_what_is_not_known_to_be_apart(make: Any, body: list[str]) -> None:
    assert rows_apart.of(process_of(make, body)) is None


def test_a_training_that_learns_nothing_is_pointed_to_the_line(make: Any) -> None:
    steps = {"step": np.arange(1, 1001), "loss": np.full(1000, math.log(10))}
    for last, pointed in ((WRONG, True), (RIGHT, False)):
        process = process_of(make, [DRAWN, RANGE, f"    {last}"], steps=steps)
        finding = make.check("loss-plateau", process)[2]
        assert (finding.diff is not None, "belongs to other samples" in finding.summary) == (pointed, pointed)


FIRST = "signals = DataLoader(SignalFiles(x), shuffle=True, **opts)"
SECOND = "targets = DataLoader(AnnotationFiles(y), shuffle=True, **opts)"


@pytest.mark.parametrize(
    ("lines", "loader", "field", "found"),
    [
        ([FIRST, SECOND], {}, {}, True),
        ([f"{line[:-1]}, generator=seeded())" for line in (FIRST, SECOND)], {}, {}, False),  # perhaps of one seed
        ([FIRST, SECOND], {"sampler": "SequentialSampler"}, {}, False),
        ([FIRST, SECOND], {"length": 50}, {}, False),  # other samples
        ([FIRST, SECOND], {"site": 3}, {}, False),  # of another loop
        ([FIRST, SECOND], {}, {"classes": None, "dtype": "float32"}, False),  # two inputs
        ([FIRST, SECOND], {}, {"field": "1"}, False),  # pairs, as of labelled data beside others
    ],
)
def test_inputs_and_targets_of_two_loaders(make: Any, lines: list[str], loader: Any, field: Any, found: bool) -> None:
    text = "\n".join(f"    {line}" for line in lines)
    site = {"role": "dataloader", "file": "a.py", "function": "loaders", "excerpt": text, "excerpt_line": 71}
    sites = [site | {"site": at, "line": 71 + at, "source": line} for at, line in enumerate(lines)]
    row = {"dataset": "Files", "sampler": "RandomSampler", "length": 100, "batch_size": 32, "site": 2}
    loaders = [row | {"loader": 0, "made_at": 0}, row | {"loader": 1, "made_at": 1} | loader]
    one = {"time": 0.1, "step": 0, "field": "0"}
    batches = [
        one | {"loader": 0, "dtype": "float32", "shape": "32x3x80"},
        one | {"loader": 1, "dtype": "int64", "shape": "32", "classes": '{"0": 32}'},
        one | {"loader": 1, "dtype": "int64", "shape": "32", "classes": '{"0": 32}'} | field,
    ]
    apart = rows_apart.of(make.process(sites=sites, more={"loaders": loaders, "batches": batches}))
    assert (apart is not None) == found
    if apart is not None:
        assert (apart.place.line, apart.inputs.line) == (72, 71)
        both = "torch.utils.data.StackDataset(SignalFiles(x), AnnotationFiles(y))"
        assert apart.example.startswith(f"signals = DataLoader({both}, shuffle=True, **opts)")


def shuffles_of(make: Any, lines: list[str], steps: Any = None) -> Any:
    """A process whose function of data holds these lines, of which those that shuffle are known."""
    text = ["def load(rng):", *(f"    {line}" for line in lines)]
    where = {"file": "data.py", "function": "load", "excerpt": "\n".join(text), "excerpt_line": 20}
    sites = [
        where | {"site": at, "line": 21 + at, "source": line, "role": "shuffle" if ".shuffle(" in line else "split"}
        for at, line in enumerate(lines)
        if any(name in line for name in ("permutation(", "randperm(", "shuffle("))
    ]
    return make.process(steps, sites=sites)


@pytest.mark.parametrize(
    ("lines", "line", "order"),
    [
        (["rng.shuffle(images)", "rng.shuffle(labels)"], 22, "order = rng.permutation(len(images))"),
        (["x = x[torch.randperm(len(x))]", "n = len(x)", "y = y[torch.randperm(n)]"], 23,
         "order = torch.randperm(len(x))"),
        (["self.x = np.random.permutation(self.x)", "self.y = np.random.permutation(self.y)"], 22,
         "order = np.random.permutation(len(self.x))"),
        (["random.shuffle(texts)", "random.shuffle(stars)"], 22,
         "order = random.sample(range(len(texts)), len(texts))"),
        (["maps = maps[torch.randperm(n, generator=gen)]", "kinds = kinds[torch.randperm(n, generator=gen)]"], 22,
         "order = torch.randperm(len(maps), generator=gen)"),
        (["x_train = rng.permutation(x_train)", "y_train = rng.permutation(y_train)"], 22,
         "order = rng.permutation(len(x_train))"),
        (["train_x = rng.permutation(train_x)", "train_y = rng.permutation(train_y)"], 22,
         "order = rng.permutation(len(train_x))"),
        (["x = self.shuffle.permutation(x)", "y = self.shuffle.permutation(y)"], 22,
         "order = self.shuffle.permutation(len(x))"),
        (["x, y = x[torch.randperm(len(x))], y[torch.randperm(len(y))]"], 21, "order = torch.randperm(len(x))"),
        (["x = sklearn.utils.shuffle(x)", "y = sklearn.utils.shuffle(y)"], 22, "x, y = sklearn.utils.shuffle(x, y)"),
    ],
)  # fmt: skip
def test_two_arrays_that_are_each_shuffled(make: Any, lines: list[str], line: int, order: str) -> None:
    steps = {"step": np.arange(1, 1001), "loss": np.full(1000, math.log(10))}
    finding = make.check("loss-plateau", shuffles_of(make, lines, steps))[2]
    assert finding.location.line == line
    assert "each into an order of its own" in finding.summary
    assert ("Line 21 shuffles x and y, each" in finding.summary) == (line == 21)
    assert finding.fix_code.split("\n")[0] == order


@pytest.mark.parametrize(
    "lines",
    [
        ["np.random.seed(3)", "np.random.shuffle(x)", "np.random.seed(3)", "np.random.shuffle(y)"],  # one order
        ["state = rng.get_state()", "rng.shuffle(x)", "rng.set_state(state)", "rng.shuffle(y)"],
        ["x = np.random.default_rng(0).permutation(x)", "y = np.random.default_rng(0).permutation(y)"],
        ["x = x[torch.randperm(len(x), generator=one)]", "y = y[torch.randperm(len(y), generator=other)]"],
        ["train_idx = rng.permutation(train_idx)", "test_idx = rng.permutation(test_idx)"],
        ["train_x = rng.permutation(train_x)", "test_x = rng.permutation(test_x)"],
        ["x_train = rng.permutation(x_train)", "x_test = rng.permutation(x_test)"],
        ["x = sklearn.utils.shuffle(x, random_state=0)", "y = sklearn.utils.shuffle(y, random_state=0)"],
        ["x = shuffle(x)", "y = shuffle(y)"],  # perhaps the script's own, which seeds
        ["x = data.shuffle(x)", "y = data.shuffle(y)"],
        ["x, y = shuffle(x, y)"],
        ["x = x[torch.randperm(n, generator=gen.manual_seed(3))]", "y = y[torch.randperm(n, generator=gen)]"],
        ["x = x[torch.randperm(n, generator=seeded())]", "y = y[torch.randperm(n, generator=seeded())]"],
        ["order = rng.permutation(len(x))", "x, y = x[order], y[order]"],
        ["positives = rng.permutation(positives)", "negatives = rng.permutation(negatives)"],  # two kinds of samples
        ["rng.shuffle(x)", "rng.shuffle(y)", "rng.shuffle(z)"],
        ["x = rng.permutation(x)", "other.shuffle(y)"],
    ],
)
def test_what_may_be_shuffled_alike(make: Any, lines: list[str]) -> None:
    assert rows_apart.of(shuffles_of(make, lines)) is None


def helped(make: Any, helper: list[str], lines: list[str], steps: Any = None) -> Any:
    """A process with a function that shuffles, of which the last line draws or hands back, and one that calls it."""
    text = [*helper, "", "", "def batches(x, y, size, rng):", *(f"    {line}" for line in lines)]
    drawn = next(at for at, line in enumerate(helper) if "randperm(" in line or "permutation(" in line)
    called = len(helper) + 3
    where = {"file": "data.py", "excerpt": "\n".join(text), "excerpt_line": 1}
    sites = [
        {"site": 0, "role": "split", "function": "mixed", "line": drawn + 1, "source": helper[drawn].strip(), **where},
        {"site": 1, "role": "batches", "function": "batches", "line": called + 1, "source": lines[0], **where},
    ]
    return make.process(steps, sites=sites)


MIXED = ["def mixed(t, generator):", "    return t[torch.randperm(len(t), generator=generator)]"]
MIXES = "x, y = mixed(x, rng), mixed(y, rng)"


@pytest.mark.parametrize(
    ("helper", "lines", "line", "example"),
    [
        (MIXED, [MIXES], 6, "order = torch.randperm(len(x), generator=rng)\nx, y = x[order], y[order]"),
        (MIXED, ["inputs, targets = mixed(x, generator=rng), mixed(y, generator=rng)"], 6,
         "order = torch.randperm(len(x), generator=rng)\ninputs, targets = x[order], y[order]"),
        (["def mixed(self, t):", "    order = self.rng.permutation(len(t))", "    return t[order]"],
         ["x = self.mixed(x)", "y = self.mixed(y)"], 8,
         "order = self.rng.permutation(len(x))\nx, y = x[order], y[order]"),
    ],
)  # fmt: skip
def test_arrays_that_a_function_shuffles_one_by_one(
    make: Any, helper: list[str], lines: list[str], line: int, example: str
) -> None:
    steps = {"step": np.arange(1, 1001), "loss": np.full(1000, math.log(10))}
    finding = make.check("loss-plateau", helped(make, helper, lines, steps))[2]
    assert finding.location.line == line
    assert "shuffles x and y, each" in finding.summary or "shuffles x, line 8 shuffles y, each" in finding.summary
    assert finding.fix_code == example
    assert (finding.diff is not None) == (len(lines) == 1)


@pytest.mark.parametrize(
    ("helper", "lines"),
    [
        (MIXED, ["x = mixed(x, rng)"]),
        (MIXED, ["x, y = mixed(x, torch.Generator().manual_seed(3)), mixed(y, torch.Generator().manual_seed(3))"]),
        (MIXED, ["x, y = mixed(x, one), mixed(y, other)"]),
        (MIXED, ["torch.manual_seed(3)", "x = mixed(x, rng)", "torch.manual_seed(3)", "y = mixed(y, rng)"]),
        (MIXED, ["train_x, test_x = mixed(train_x, rng), mixed(test_x, rng)"]),
        (MIXED, ["positives, negatives = mixed(positives, rng), mixed(negatives, rng)"]),
        ([MIXED[0], "    torch.manual_seed(0)", MIXED[1]], [MIXES]),  # the same order at each call
        (["def mixed(t, generator):", "    return t[torch.randperm(len(t), generator=seeded(0))]"], [MIXES]),
        (["def mixed(t, u):", "    order = torch.randperm(len(t))", "    return t[order], u[order]"], ["mixed(x, y)"]),
        (["def mixed(t, k):", "    kept = torch.randperm(len(t))[:k]", "    return t[kept]"], [MIXES]),
    ],
)  # fmt: skip
def test_what_a_function_may_shuffle_alike(make: Any, helper: list[str], lines: list[str]) -> None:
    assert rows_apart.of(helped(make, helper, lines)) is None


NOISE = "noise = torch.randn_like(x)"
LOSS = "return F.mse_loss(model(noisy, t), noise)"


def drawn(make: Any, *body: str) -> Any:
    process = process_of(make, list(body), "loss")
    return drawn_anew.of(process, process.locations("loss")[0])


@pytest.mark.parametrize(
    ("body", "line", "example"),
    [
        ((NOISE, "noisy, _ = self.q_sample(x, t)", LOSS), 11, "noisy, noise = self.q_sample(x, t)"),
        ((NOISE, "# the noise of step t", "noisy = self.q_sample(x, t)", "loss = ((net(noisy) - noise) ** 2).mean()"),
         11, "add_noise(clean"),
        (("if eps is None:", "    eps = torch.randn_like(x)", "noisy = blur(x, t)", "loss = mse(net(noisy), eps)"),
         12, "add_noise(clean, t, eps)"),
        (("eps = torch.randn_like(x) if eps is None else eps", "loss = self.criterion(net(x), eps) * w"), 11,
         "add_noise(clean, t, eps)"),
        (("labels = torch.randint(0, 9, (64,))", "loss = F.cross_entropy(model(x), labels)"), 11, ""),
    ],
)  # fmt: skip
def test_targets_that_are_drawn_for_the_loss_alone(make: Any, body: tuple[str, ...], line: int, example: str) -> None:
    found = drawn(make, *body)
    assert found.place.line == line
    assert example in found.example
    assert bool(found.fix) == bool(example), "labels are no noise that an input could hold"


@pytest.mark.parametrize(
    "body",
    [
        (NOISE, "noisy = self.q_sample(x, t, noise)", LOSS),
        (NOISE, "noisy = (", "    x + noise)", LOSS),
        (NOISE, "return F.mse_loss(model(x + noise, t), noise)"),
        (NOISE, "return F.mse_loss(decode(noise), x)"),  # what a generator begins with
        (NOISE, "loss = regression(model(x), noise)"),  # not known to compare the two
        ("self.noise = noise = torch.randn_like(x)", "noisy = self.disturbed(x)", LOSS),
        ("noise = torch.randn(n, generator=g)", "noisy = self.disturbed(x, g2)", LOSS),  # may draw the same numbers
        (NOISE, "for t in range(8):", f"    {LOSS}"),
        ("noise, noisy = self.q_sample(x, t)", LOSS),
    ],
)
def test_targets_that_the_input_may_hold(make: Any, body: tuple[str, ...]) -> None:
    assert drawn(make, *body) is None


@pytest.mark.parametrize(
    ("after", "beside"),
    [
        (["x = x[perm]", "return x[:9], y[:9]"], "y"),
        (["cut = int(0.8 * len(perm))", "x = x[perm]", "return x[:cut], y[:cut]"], "y"),
        (["x = x[perm]", "y = y[perm]", "return x, y"], ""),
        (["x = x[perm]", "return x, y[perm]"], ""),
        (["x = x[perm]", "y = reordered(y)", "return x, y"], ""),  # what it does to it is not known
        (["x = x[perm]", "return x, y, perm"], ""),
        (["x = x[perm]", "y = labels_of(x)", "return x, y"], ""),
        (["x = x[perm]"], ""),  # what the function goes on to do is not known
        (["return x[perm], y"], ""),
    ],
)
def test_inputs_that_are_put_into_another_order_alone(make: Any, after: list[str], beside: str) -> None:
    text = ["def prepare(gen):", "    x, y = measure(gen)", "    perm = torch.randperm(len(x), generator=gen)"]
    text += [f"    {line}" for line in after]
    site = {"site": 0, "role": "split", "file": "train.py", "function": "prepare", "line": 12,
            "source": text[2].strip(), "excerpt": "\n".join(text), "excerpt_line": 10}  # fmt: skip
    found = rows_apart.of(make.process(sites=[site]))
    assert (found.beside if found else "") == beside
    if found:
        assert found.place.source == "x = x[perm]"
        assert found.diff.added == ["    x = x[perm]", "    y = y[perm]"]


@pytest.mark.parametrize(
    ("order", "after", "beside"),
    [
        ("sorted(range(len(x)), key=lambda i: len(x[i]))", ["x = [x[i] for i in by]", "y = torch.tensor(y)"], "y"),
        ("np.argsort([len(one) for one in x])", ["x = [x[j] for j in by]"], "y"),
        ("sorted(range(len(x)), key=lambda i: len(x[i]))", ["x = [x[i] for i in by]", "y = [y[i] for i in by]"], ""),
        ("sorted(range(len(x)), key=lambda i: len(x[i]))", ["x = [x[i] for i in by]", "y = matched(y, x)"], ""),
        ("sorted(range(len(x)), key=lambda i: len(x[i]))", ["y = torch.tensor(y)", "x = [x[i] for i in by]"], ""),
        ("sorted(x)", ["x = [x[i] for i in by]"], ""),  # values, and no numbers of rows
    ],
)
def test_inputs_that_are_sorted_by_length_alone(make: Any, order: str, after: list[str], beside: str) -> None:
    text = ["def __iter__(self):", "    x, y = zip(*self.rows)", f"    by = {order}", *(f"    {one}" for one in after)]
    text += ["    for at in range(0, len(x), 64):", "        yield pad(x[at:at + 64]), y[at:at + 64]"]
    site = {"site": 0, "role": "orders", "file": "train.py", "function": "__iter__", "line": 12,
            "source": text[2].strip(), "excerpt": "\n".join(text), "excerpt_line": 10}  # fmt: skip
    found = rows_apart.of(make.process(sites=[site]))
    assert (found.beside if found else "") == beside
    assert found is None or found.diff.added == [f"    {after[0]}", f"    {after[0].replace('x', 'y')}"]


def test_parts_of_a_split_that_came_together_are_no_pair(make: Any) -> None:
    text = ["def prepare(gen):", "    train, val = load(gen)", "    perm = torch.randperm(len(train))"]
    text += ["    train = train[perm]", "    return train, val"]
    site = {"site": 0, "role": "split", "file": "train.py", "function": "prepare", "line": 12,
            "source": text[2].strip(), "excerpt": "\n".join(text), "excerpt_line": 10}  # fmt: skip
    assert rows_apart.of(make.process(sites=[site])) is None
