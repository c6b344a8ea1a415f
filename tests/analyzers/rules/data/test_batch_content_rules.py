"""Rules that recognise batches by their content: again in the next epoch, or from another worker."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyzers.batch_orders import IDS, RANDOM, SETTINGS, batch, epochs, shuffled
from tracelyze.analyzers.computed.data import passes
from tracelyze.analyzers.computed.data.passes import Pass

UNTOLD = {"shuffled": None, "sampler": "ByLength", "takes_epoch": "batch_sampler", "batch_size": None}
STREAM = SETTINGS | {"sampler": "_InfiniteConstantSampler", "shuffled": None, "iterable": True, "num_workers": 2}


def judge(make, rule: str, rows: list[dict[str, Any]], loaders: list[dict[str, Any]], **more: Any):
    process = make.process(loaders=loaders, more={"batches": rows}, **more)
    return make.check(rule, process)


def test_the_same_order_every_epoch(make) -> None:
    one = [RANDOM | {"loader": 0}]
    _, _, finding = judge(make, "same-order-every-epoch", epochs(shuffled([1, 1, 1])), one)
    assert (finding.severity, finding.location.line, finding.first_step) == ("warning", 30, 51)
    assert "torch.manual_seed" in finding.summary
    distributed = [RANDOM | {"loader": 0, "sampler": "DistributedSampler"}]
    drawing = [{"loader": 0, "epoch": 0, "worker": 0, "step": 0, "batches": 9, "moved": "own", "start": "a"}]
    process = make.process(loaders=one, more={"batches": epochs(shuffled([1, 1, 1])), "fetches": drawing})
    status, reason, _ = make.check("same-order-every-epoch", process)
    assert (status, "random numbers" in reason) == ("skipped", True)
    finding = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4)), distributed)[2]
    assert "loader.sampler.set_epoch" in finding.fix_code
    assert "random numbers" not in finding.summary, "they are drawn from other generators"
    anew = [RANDOM | {"loader": index} for index in range(4)]
    finding = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4), [0, 1, 2, 3]), anew)[2]
    assert "made anew" in finding.summary
    first = [row | {"made_at": 0} for row in anew]  # the first line that was numbered
    assert judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4), [0, 1, 2, 3]), first)[0] == "fired"


@pytest.mark.parametrize(
    ("source", "all_repeat"),
    [
        ("torch.manual_seed(1234)", True),
        ("seed_everything(7)", True),
        ("generator.manual_seed(1234)", False),
        ("loader = DataLoader(data, generator=torch.Generator().manual_seed(0))", False),
    ],
)
def test_what_repeats_beside_the_order(make, source: str, all_repeat: bool) -> None:
    """A seed of one generator leaves the others alone."""
    seed = {"site": 40, "role": "reseed", "file": "train.py", "line": 12, "function": "main", "source": source}
    one = [RANDOM | {"loader": 0}]
    finding = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4)), one, sites=[seed])[2]
    assert ("random numbers repeat" in finding.summary) is all_repeat
    said = "Line 12 puts the generator of the order back before each pass." in finding.summary
    assert said is (source == "torch.manual_seed(1234)" or source == "seed_everything(7)"), "a loader may have its own"
    assert finding.fix_code.endswith("and no longer on line 12") is said
    own = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4)), [one[0] | {"own_generator": True}],
                sites=[seed])[2]  # fmt: skip
    assert "Line 12" not in own.summary


@pytest.mark.parametrize(
    ("source", "function", "told"),
    [
        ("torch.manual_seed(args.seed)", "main", True),
        ("torch.manual_seed(7)", "main", False),  # of another seed: the order of the first epoch changes
        ("torch.manual_seed(args.seed)", "test", False),  # which may run in each epoch, too
    ],
)
def test_a_script_that_seeds_once_and_again_in_each_epoch(make, source: str, function: str, told: bool) -> None:
    again = {"role": "seed", "file": "a.py", "line": 12, "function": "train", "source": "torch.manual_seed(args.seed)"}
    sites = [again | {"site": 40}, again | {"site": 41, "line": 30, "function": function, "source": source}]
    sites += [again | {"site": 42, "role": "loader", "line": 14, "source": "for x, y in loader:"}]
    sites += [again | {"site": 43, "role": "dataloader", "line": 31, "function": "main", "source": "DataLoader(data)"}]
    one = [RANDOM | {"loader": 0}]
    finding = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4)), one, sites=sites)[2]
    assert finding.location.line == 12
    assert ("Take line 12 out: line 30 seeds in the same way" in finding.fix) is told
    assert bool(finding.fix_code) is not told


def first_batches(make, contents: list[object], source: str = "x, y = next(iter(loader))", **loader: Any):
    """A loop of 60 steps, each of which asks a new iterator for its first batch."""
    row = SETTINGS | {"loader": 0, "sampler": "SequentialSampler", "shuffled": False, "site": 0} | loader
    rows = [batch(0, step, 0, content) | {"step": step} for step, content in enumerate(contents)]
    columns = make.steps(60) | {"loader": [0] * 60, "loader_first": [True] * 60, "loader_batches": [1] * 60}
    site = {"site": 0, "file": "train.py", "line": 12, "function": "main", "source": source, "role": "loader"}
    return make.check("no-shuffle", make.process(columns, loaders=[row], sites=[site], more={"batches": rows}))


def test_every_step_asks_a_new_iterator_for_its_first_batch(make) -> None:
    status, reason, finding = first_batches(make, ["a"] * 10)
    assert status == "fired", reason
    assert (finding.severity, finding.location.line, finding.first_step) == ("critical", 12, 1)
    assert "first batch of Images, of 50 batches" in finding.title
    assert "train_step(" not in finding.fix_code, "what the script calls its step is not known"
    made_up = first_batches(make, list(range(10)))  # by a dataset that draws its samples at random
    overfit = first_batches(make, ["a"] * 10, "trainer.fit(model, loader)")
    for look_alike in (made_up, overfit):
        assert look_alike[0] != "fired" or look_alike[2].severity == "info"
    assert first_batches(make, ["a"] * 10, sampler="RandomSampler", shuffled=True)[0] == "passed"
    assert first_batches(make, ["a"] * 10, length=1)[0] != "fired", "all of the data are one batch, which has no order"


@pytest.mark.parametrize(
    ("orders", "loader", "status"),
    [
        (shuffled([1, 2, 3, 4]), RANDOM, "passed"),
        (shuffled([1, 1, 2, 3]), RANDOM, "passed"),  # begun anew once
        (shuffled([2, 1, 1]), RANDOM, "passed"),
        (shuffled([1, 1]), RANDOM, "skipped"),  # two passes
        ([[0] * 50] * 5, RANDOM, "skipped"),  # every batch is like the others
        (shuffled([1] * 5), RANDOM | {"shuffled": False, "sampler": "SequentialSampler"}, "passed"),
        (shuffled([1] * 5), RANDOM | {"shuffled": None, "sampler": "ByLength"}, "passed"),
        (shuffled([1, 2, 3, 4]), RANDOM | UNTOLD, "passed"),
    ],
)
def test_orders_that_are_as_they_should_be(make, orders, loader, status) -> None:
    assert judge(make, "same-order-every-epoch", epochs(orders), [loader | {"loader": 0}])[0] == status


def test_an_order_that_repeats_from_the_second_epoch_on(make) -> None:
    """A seed in a hook of the validation runs for the first time when an epoch is over."""
    seed = {"site": 41, "role": "seed", "file": "a.py", "line": 88, "function": "on_validation_epoch_start"}
    first = {
        "site": 42,
        "role": "seed",
        "file": "a.py",
        "line": 100,
        "function": "main",
        "source": "seed_everything(1)",
    }
    sites = [seed | {"source": "L.seed_everything(self.hparams.seed)"}, first]
    one = [RANDOM | {"loader": 0}]
    _, _, finding = judge(make, "same-order-every-epoch", epochs(shuffled([2, 1, 1, 1])), one, sites=sites)
    assert finding.title == "Every epoch after the first uses the same order, although the loader shuffles"
    assert (finding.location.line, finding.first_step) == (88, 101)
    assert "In 3 passes" in finding.summary
    assert "self" not in finding.fix_code, "an example for elsewhere has nothing of the method"
    own = {"site": 41, "role": "seed", "file": "a.py", "line": 88, "function": "on_validation_epoch_start"}
    own |= {"source": "self.noise = torch.Generator().manual_seed(0)"}
    finding = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4)), one, sites=[own])[2]
    assert "line 88" not in (finding.summary + finding.fix).lower(), "a generator of its own leaves the order alone"


def test_a_sampler_of_the_script_that_nobody_tells_the_epoch(make) -> None:
    """It has a set_epoch, and its order repeats: what to call is the attribute of the loader that holds it."""
    call = {"site": 41, "role": "set-epoch", "file": "a.py", "line": 12, "function": "main", "source": "set_epoch(e)"}
    one = [RANDOM | UNTOLD | {"loader": 0}]
    status, _, finding = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 5)), one, sites=[call])
    assert (status, finding.confidence) == ("fired", "likely")
    assert "ByLength has a set_epoch" in finding.summary
    assert "Line 12 calls a set_epoch" in finding.summary
    assert "loader.batch_sampler.set_epoch(epoch)" in finding.fix_code
    assert "loader shuffles" not in finding.title + finding.summary


def test_a_set_epoch_for_another_sampler(make) -> None:
    """Beside batch_sampler=, `loader.sampler` is one that nothing asks. The line that calls it is the one to change."""
    call = {"site": 41, "role": "set-epoch", "file": "a.py", "line": 12, "function": "begin"}
    loader = RANDOM | {"loader": 0, "sampler": "DistributedSampler", "takes_epoch": "batch_sampler.sampler"}

    def found(source: str) -> Any:
        return judge(
            make, "same-order-every-epoch", epochs(shuffled([1] * 5)), [loader], sites=[call | {"source": source}]
        )[2]

    finding = found("loader.sampler.set_epoch(epoch)")
    assert finding.location.line == 12
    assert "another one, which nothing asks" in finding.summary
    finding = found("loader.batch_sampler.sampler.set_epoch(epoch)")
    assert finding.location.line == 12
    assert "another one" not in finding.summary


DRAW = {"site": 3, "role": "split", "file": "t.py", "line": 9, "function": "main", "source": "p = torch.randperm(n)"}
SEED = {"site": 4, "role": "reseed", "file": "t.py", "line": 8, "function": "run", "source": "random.seed(42)"}


def by_hand(make, *sites: dict[str, Any], **more: Any):
    order = {"steps": 400, "period": 50, "passes": 8, "distinct": 50, "adjoining": 0.0} | more
    event = {"kind": "input-order", "text": json.dumps(order), "step": 400}
    return make.check("same-order-every-epoch", make.process(sites=list(sites), more={"events": [event]}))


def test_an_order_that_is_drawn_by_hand(make) -> None:
    status, _, finding = by_hand(make, DRAW)
    assert (status, finding.severity, finding.confidence, finding.location.line) == ("fired", "info", "certain", 9)
    _, _, finding = by_hand(make, DRAW, SEED)
    assert (finding.severity, finding.location.line) == ("warning", 8), "seeded anew in a loop: a new order was meant"
    shuffle = DRAW | {"role": "shuffle", "source": "random.shuffle(rows)"}
    assert by_hand(make, shuffle)[0] == "fired"


def test_a_generator_that_is_made_anew_for_each_epoch(make) -> None:
    maker = {"role": "batches", "file": "t.py", "line": 53, "function": "batches"}
    split = DRAW | {"line": 45, "function": "load", "source": "order = np.random.default_rng(0).permutation(n)"}
    drawn = DRAW | {"site": 5, "line": 54, "function": "batches", "source": "order = rng.permutation(n)"}
    made = maker | {"site": 6, "source": "rng = np.random.default_rng(cfg.seed)"}
    seed = made | {"site": 7, "role": "reseed"}
    for sites in ((split, drawn, made), (split, drawn, seed)):
        _, _, finding = by_hand(make, *sites)
        assert (finding.severity, finding.location.line) == ("warning", 53), "not the split, which must stay as it is"
        assert "Line 53 re-creates the generator for each epoch" in finding.summary
        assert "rng = np.random.default_rng(cfg.seed)" in finding.fix_code
    given = maker | {"site": 6, "source": "for start in range(0, n, 32):"}
    _, _, finding = by_hand(make, split, drawn, given)
    assert (finding.location.line, "drawn once" in finding.summary) == (54, False)
    unseeded = seed | {"source": "rng = np.random.default_rng()"}
    assert "re-creates the generator" not in by_hand(make, split, drawn, given, unseeded)[2].summary
    _, _, finding = by_hand(make, split)
    assert "Either it is drawn once, or" in finding.summary, "its function may be called for each epoch"
    loop = {"site": 8, "role": "epochs", "file": "t.py", "line": 12, "function": "main", "source": "for e in range(8):"}
    assert "The order is drawn once" in by_hand(make, DRAW, loop)[2].summary
    inside = DRAW | {"line": 13, "source": "p = torch.randperm(n, generator=g)"}
    _, _, finding = by_hand(make, inside, loop, loop | {"site": 9, "role": "backward", "line": 20})
    assert "Line 13 draws an order for each epoch" in finding.summary
    for source, above in (
        ("order = torch.randperm(n) if mixed else torch.arange(n)", ""),
        ("order = torch.randperm(n)", "if mixed:"),
    ):
        indent = "    " * bool(above)
        text = {"excerpt": f"    {above}\n{indent}    {source}", "excerpt_line": 12, "line": 13, "source": source}
        finding = by_hand(make, DRAW | {"function": "batches"} | text, maker | {"site": 6, "source": "order = [0]"})[2]
        assert (finding.severity, finding.location.line) == ("info", 13)
        assert "Line 13 draws an order under a condition, which may not have held." in finding.summary


def test_hand_made_orders_that_are_as_they_should_be(make) -> None:
    assert by_hand(make)[0] == "passed", "nothing is shuffled: a series, or the order of a file"
    assert by_hand(make, DRAW, period=0, passes=0, distinct=0)[0] == "passed", "anew for each epoch"
    assert by_hand(make, DRAW, adjoining=0.98)[0] == "passed", "slices of a tensor that was shuffled for a split"
    assert by_hand(make, DRAW, period=2, passes=200, distinct=2)[0] == "passed", "two halves in turn"
    assert by_hand(make, DRAW, passes=2)[0] == "passed"
    assert make.check("same-order-every-epoch", make.process())[0] == "skipped"


def test_validation_and_blank_batches_say_nothing_of_the_order(make) -> None:
    one = [RANDOM | {"loader": 0}]
    assert judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4), trained=False), one)[0] == "skipped"
    assert judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4), prints="- - -"), one)[0] == "skipped"


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_workers_that_yield_the_whole_stream(make, workers) -> None:
    rows = epochs([[place // workers for place in range(50)]])
    _, _, finding = judge(make, "duplicated-batches", rows, [STREAM | {"loader": 0, "num_workers": workers}])
    assert f"comes {'twice' if workers == 2 else f'{workers} times'}" in finding.title
    assert f"{'twice' if workers == 2 else f'{workers} times'} as long as it should be" in finding.summary
    assert "get_worker_info" in finding.fix_code
    early = {"site": 9, "role": "worker-asked", "file": "a.py", "line": 49, "function": "share", "source": "x = f()"}
    loaders = [STREAM | {"loader": 0, "num_workers": workers}]
    _, _, finding = judge(make, "duplicated-batches", rows, loaders, sites=[early])
    assert (finding.location.line, finding.fix_code.split("  #")[0]) == (49, "self.share()")
    assert "Line 49 asks which worker it runs in as the dataset is made" in finding.summary
    ids = [{**row, **IDS, "prints": None} for row in rows]  # a table of users and items: no sample has a print
    assert judge(make, "duplicated-batches", ids, [STREAM | {"loader": 0, "num_workers": workers}])[0] == "fired"


@pytest.mark.parametrize(
    ("order", "loader", "status"),
    [
        (list(range(50)), STREAM, "passed"),
        ([0] * 50, STREAM, "passed"),  # synthetic data: the same batch for ever
        ([place // 3 for place in range(50)], STREAM, "passed"),  # oversampled, not in step with the workers
        ([place // 2 for place in range(50)], STREAM | {"num_workers": 0}, "skipped"),
        ([place // 2 for place in range(50)], STREAM | {"iterable": False}, "skipped"),
    ],
)
def test_streams_whose_batches_are_their_own(make, order, loader, status) -> None:
    assert judge(make, "duplicated-batches", epochs([order]), [loader | {"loader": 0}])[0] == status


contents = st.dictionaries(st.integers(0, 40), st.sampled_from("abcdef"), max_size=12)


@given(contents, contents)
def test_passes_agree_with_themselves_and_mutually(one: dict[int, str], other: dict[int, str]) -> None:
    a, b = Pass(0, 0, 0, one), Pass(0, 1, 50, other)
    assert a.agreement(a) == (1.0 if one else 0.0)
    assert a.agreement(b) == b.agreement(a)
    assert 0 <= a.agreement(b) <= 1
    assert a.distinctive == sum(1 for x in one.values() if list(one.values()).count(x) == 1)
    assert all(p in one and p in other for p in a.common(b))


def test_fields_of_a_batch_count_together(make) -> None:
    rows = [batch(0, 0, 0, content, field=name) for name, content in (("0", "x"), ("1", "y"))]
    (one,) = passes.of_training(make.process(more={"batches": rows}))
    assert list(itertools.chain(one.batches.items())) == [(0, "x y")]


def test_an_epoch_of_one_batch_has_an_order_of_its_samples(make) -> None:
    def rows(orders: list[str]) -> list[dict[str, Any]]:
        return [batch(0, epoch, 0, order, prints=" ".join(order)) for epoch, order in enumerate(orders)]

    full = [RANDOM | {"loader": 0, "length": 1}]
    assert judge(make, "same-order-every-epoch", rows(["abcdefgh"] * 4), full)[0] == "fired"
    assert judge(make, "same-order-every-epoch", rows(["abcdefgh", "hgfedcba", "bacdefgh"]), full)[0] == "passed"
    assert judge(make, "same-order-every-epoch", rows(["ab"] * 4), full)[0] == "skipped"  # chance does that


def test_copies_in_epochs_of_few_batches(make) -> None:
    loader = [STREAM | {"loader": 0, "length": None}]
    rows = [batch(0, epoch, place, f"{epoch}.{place // 2}") for epoch in range(2) for place in range(6)]
    assert judge(make, "duplicated-batches", rows, loader)[0] == "fired"
    assert judge(make, "duplicated-batches", rows[:6], loader)[0] == "skipped"


@pytest.mark.parametrize(
    ("rows", "status", "confidence"),
    [
        (epochs([list(range(50))] * 4), "fired", "certain"),
        # The dataset augments its inputs, and what they are stays: its targets tell that the samples come again.
        ([*epochs(shuffled([1, 2, 3, 4])), *epochs([list(range(50))] * 4, field="1")], "fired", "certain"),
        (epochs(shuffled([1, 2, 3, 4])), "passed", None),  # it ignores the index and draws
        ([*epochs(shuffled([1, 2, 3, 4])), *epochs([[7] * 50] * 4, field="1")], "passed", None),  # a constant field
        ([], "fired", "likely"),
    ],
)
def test_reading_in_order_repeats_batches_where_an_index_stands_for_a_sample(make, rows, status, confidence) -> None:
    loader = SETTINGS | {"loader": 0, "sampler": "SequentialSampler", "shuffled": False, "site": 2}
    once = make.steps() | {"loader_first": [index % 100 == 0 for index in range(400)]}
    found = make.check("no-shuffle", make.process(once, loaders=[loader], more={"batches": rows}))
    assert found[0] == status
    if confidence:
        assert (found[2].severity, found[2].confidence) == ("info", confidence)
    else:
        assert "other samples" in found[1]
    drawn = make.process(once, loaders=[loader | {"ignores_index": True}], more={"batches": rows})
    status, reason, _ = make.check("no-shuffle", drawn)
    assert status == "passed"
    assert "Images does not read the index that it is given" in reason


@pytest.mark.parametrize(
    ("head", "call", "over", "named"),
    [
        ("def train(model, batches):", "train(net, train_loader)", "batches", "train_loader"),
        ("def train(self, batches, epoch):", "self.train(self.loaders.train, epoch)", "batches", "self.loaders.train"),
        ("def train(model, *, batches):", "train(net, batches=train_loader)", "batches", "train_loader"),
        ("def train(self, epoch):", "self.train(epoch)", "self.batches", "self.batches"),
        ("def train(self, epoch):", "trainer.train(epoch)", "self.batches", ""),
        ("def train(model, batches):", "train(net, wrapped(train_loader))", "batches", ""),
        ("def train(model,", "train(net, train_loader)", "batches", ""),
        ("def train(model, batches):", "fit(net, train_loader)", "batches", None),
    ],
)
def test_a_loop_over_epochs_that_calls_the_function_of_the_other_loop(make, head, call, over, named) -> None:
    """The edit knows the loader by what the call gives; `named` is None where that loop calls another function."""
    lines = {"file": "train.py", "function": "main"}
    inner = {"file": "train.py", "function": "train", "line": 3, "excerpt": f"{head}\n    model.train()"}
    sites = [
        inner | {"site": 60, "role": "loader", "source": f"for x, y in {over}:", "excerpt_line": 1},
        lines | {"site": 61, "role": "epochs", "line": 19, "source": "for epoch in range(9):", "excerpt_line": 19}
        | {"excerpt": f"    for epoch in range(9):\n        loss = {call}\n    print(loss)"},
    ]  # fmt: skip
    loader = RANDOM | {"loader": 0, "sampler": "DistributedSampler", "site": 60, "made_at": 2}
    _, _, finding = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4)), [loader], sites=sites)
    assert (finding.location is not None and finding.location.line == 19) == (named is not None)
    added = finding.diff.added if finding.diff else None
    told = f"        {named}.sampler.set_epoch(epoch)"
    assert added == (["    for epoch in range(9):", told] if named else None)


@pytest.mark.parametrize(
    ("made", "over", "edited"),
    [
        ("loader = DataLoader(data, sampler=sampler)", "for x, y in loader:", True),
        ("loader = DataLoader(data, sampler=sampler)", "for i, (x, y) in enumerate(loader):", True),
        ("loader = DataLoader(data, sampler=sampler)", "for x, y in prefetched(loader, 2):", True),
        ("loader = DataLoader(data, sampler=sampler)", "for x, y in batches:", False),  # whatever these are
        ("return DataLoader(data, sampler=sampler)", "for x, y in loader:", False),
    ],
)
def test_the_loop_over_epochs_tells_the_sampler_its_number(make, made: str, over: str, edited: bool) -> None:
    lines = {"file": "t.py", "function": "main", "excerpt_line": 8}
    lines["excerpt"] = f"    {made}\n    for epoch in range(9):\n        {over}\n            step(x, y)"
    sites = [
        lines | {"site": 60, "role": "dataloader", "line": 8, "source": made},
        lines | {"site": 61, "role": "epochs", "line": 9, "source": "for epoch in range(9):"},
        lines | {"site": 62, "role": "loader", "line": 10, "source": over},
    ]
    loader = RANDOM | {"loader": 0, "sampler": "DistributedSampler", "made_at": 60, "site": 62}
    finding = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4)), [loader], sites=sites)[2]
    assert (finding.location.line, finding.seen_at.line) == (9, 8)
    added = finding.diff.added if finding.diff else None
    assert added == (["    for epoch in range(9):", "        loader.sampler.set_epoch(epoch)"] if edited else None)


G = "g = torch.Generator().manual_seed(seed)"
MADE = "return DataLoader(data, batch_size=32, shuffle=True, generator=g)"


@pytest.mark.parametrize(
    ("seed", "made", "line"),
    [
        (G, MADE, 9),
        ("g.manual_seed(seed)", MADE, 9),
        ("torch.manual_seed(0)", "return DataLoader(data, batch_size=32, shuffle=True)", 9),
        ("torch.manual_seed(0)", MADE, 10),  # of the generator that the loader is given nothing is known
        (G, "return DataLoader(data, batch_size=32, shuffle=True)", 10),  # it draws something else
        ("rng = np.random.default_rng(0)", "return DataLoader(data, batch_size=32, shuffle=True)", 10),
        (G, "return DataLoader(data, generator=self.g, shuffle=True, batch_size=32)", 10),
        (G, "return DataLoader(data, **options)", 10),
    ],
)
def test_what_seeds_the_order_of_a_loader_that_is_made_anew(make, seed: str, made: str, line: int) -> None:
    """It is named where the order is drawn from what it seeds. What returns a loader cannot stand above a loop."""
    lines = {"file": "t.py", "function": "make_loader", "excerpt_line": 8}
    lines["excerpt"] = f"def make_loader(data, seed):\n    {seed}\n    {made}\n"
    sites = [
        lines | {"site": 60, "role": "dataloader", "line": 10, "source": made},
        lines | {"site": 61, "role": "seed", "line": 9, "source": seed},
    ]
    anew = [RANDOM | {"loader": index, "made_at": 60} for index in range(4)]
    finding = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4), [0, 1, 2, 3]), anew, sites=sites)[2]
    assert finding.location.line == line
    assert ("each time line 9 seeds" in finding.summary) is (line == 9)
    assert "return" not in finding.fix_code
    assert seed in finding.fix_code or line == 10


def test_a_seed_above_the_loop_that_makes_the_loaders(make) -> None:
    """It runs once: not by it does the order repeat."""
    lines = {"file": "t.py", "function": "main", "excerpt_line": 8}
    made = "loader = DataLoader(data, batch_size=32, shuffle=True)"
    lines["excerpt"] = f"    torch.manual_seed(0)\n    for epoch in range(9):\n        {made}\n"
    sites = [
        lines | {"site": 60, "role": "dataloader", "line": 10, "source": made},
        lines | {"site": 61, "role": "seed", "line": 8, "source": "torch.manual_seed(0)"},
        lines | {"site": 62, "role": "epochs", "line": 9, "source": "for epoch in range(9):"},
    ]
    anew = [RANDOM | {"loader": index, "made_at": 60} for index in range(4)]
    finding = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4), [0, 1, 2, 3]), anew, sites=sites)[2]
    assert finding.location.line == 10
    assert made in finding.fix_code


@pytest.mark.parametrize(
    ("seed", "edited"),
    [
        (G, "g = torch.Generator().manual_seed(seed + self.trainer.current_epoch)"),
        ("g.manual_seed(seed or 3)", "g.manual_seed((seed or 3) + self.trainer.current_epoch)"),
    ],
)
@pytest.mark.parametrize("step", ["trainer.fit(net, datamodule=data)", "optimizer.step()"])
def test_a_trainer_that_asks_for_a_loader_each_epoch_knows_the_number_of_it(make, seed, edited, step) -> None:
    """A loop of the script's own over train_dataloader() has no trainer."""
    lines = {"file": "t.py", "function": "train_dataloader", "excerpt_line": 8}
    lines["excerpt"] = f"    def train_dataloader(self):\n        {seed}\n        {MADE}\n"
    sites = [
        lines | {"site": 60, "role": "dataloader", "line": 10, "source": MADE},
        lines | {"site": 61, "role": "seed", "line": 9, "source": seed},
        {"site": 62, "file": "t.py", "function": "main", "role": "step", "line": 90, "source": step},
    ]
    anew = [RANDOM | {"loader": index, "made_at": 60} for index in range(4)]
    finding = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4), [0, 1, 2, 3]), anew, sites=sites)[2]
    assert finding.location.line == 9
    if "fit" in step:
        assert finding.diff is not None
        assert (finding.diff.added, "loop" in finding.fix) == ([f"        {edited}"], False)
    else:
        assert (finding.diff, "above the loop" in finding.fix) == (None, True)


HANDLER = """\
def main():
    loader = DataLoader(data, batch_size=32, shuffle=True)

    @trainer.on(Events.{event})
    def again(engine):
        torch.manual_seed(7)
"""


@pytest.mark.parametrize(("event", "line"), [("EPOCH_STARTED", 6), ("STARTED", 2)])
def test_a_handler_of_ignite_that_seeds_at_each_epoch(make, event: str, line: int) -> None:
    """One of the start of all epochs runs once: what else seeds is not known, and a generator of the loader's own is
    no matter to it."""
    text = HANDLER.format(event=event)
    seed, made = ({"file": "t.py", "excerpt": text, "excerpt_line": 1, "site": 60 + at} for at in range(2))
    seed |= {"role": "seed", "function": "again", "line": 6, "source": "torch.manual_seed(7)"}
    made |= {"role": "dataloader", "function": "main", "line": 2, "source": text.splitlines()[1].strip()}
    one = [RANDOM | {"loader": 0, "made_at": 61}]
    finding = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4)), one, sites=[seed, made])[2]
    assert (finding.location.line, "Take line 6 out" in finding.fix) == (line, line == 6)
    added = finding.diff.added if finding.diff else []
    with_own = "    loader = DataLoader(data, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(0))"
    assert added == ([] if line == 6 else [with_own])


@pytest.mark.parametrize("argument", ["shuffle=True, generator=g", "sampler=sampler", "**options"])
def test_a_loader_that_may_draw_from_another_generator_gets_none(make, argument: str) -> None:
    text = f"def main():\n    torch.set_num_threads(1)\n    loader = DataLoader(data, {argument})\n"
    made = {"file": "t.py", "excerpt": text, "excerpt_line": 1, "site": 61, "role": "dataloader", "function": "main"}
    made |= {"line": 3, "source": text.splitlines()[2].strip()}
    one = [RANDOM | {"loader": 0, "made_at": 61}]
    finding = judge(make, "same-order-every-epoch", epochs(shuffled([1] * 4)), one, sites=[made])[2]
    assert (finding.diff, "one loader" in finding.fix) == (None, False)
