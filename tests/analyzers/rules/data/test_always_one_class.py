"""class-imbalance, where the model answers the frequent class to everything."""

from __future__ import annotations

import pytest


def skewed(make, **change):
    fields = {"loader": 0, "epoch": 0, "trained": True, "field": "1", "dtype": "int64", "shape": "64"}
    batches = [fields | {"step": at, "batch": at, "classes": '{"0": 61, "1": 3}'} for at in range(8)]
    call = {"function": "cross_entropy", "site": 1, "training": True, "input_shape": "64x2", "target_shape": "64",
            "target_integer": True, "target_varies": 0.2, "answer": 0, "answer_same": 1.0} | change  # fmt: skip
    calls = [call | {"step": step} for step in (0, 5, 250, 390)]
    return make.process(more={"batches": batches, "loss_calls": calls})


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({}, "warning"),
        ({"answer_same": 0.995}, "warning"),
        ({"answer_same": 0.95}, "info"),  # as often as the rare class is met
        ({"answer": 1}, "info"),
        ({"answer": None, "answer_same": None}, "info"),
        ({"target_varies": 0.0}, "info"),
        ({"input_shape": "8x2"}, "info"),  # too few samples to hold a rare one
    ],
)
def test_one_answer_to_everything(make, change, severity) -> None:
    _, _, finding = make.check("class-imbalance", skewed(make, **change))
    assert finding.severity == severity
    assert ("nearly always answers" in finding.title) == (severity == "warning")


def test_one_answer_in_validation_where_training_was_looked_at_early_only(make) -> None:
    made = skewed(make)
    (call, *_) = (row for row in made.tables["loss_calls"].records())
    early, held_out = call | {"step": 5}, call | {"step": 390, "training": False}
    tables = {"batches": list(made.tables["batches"].records())}

    def judged(*calls):
        return make.check("class-imbalance", make.process(more=tables | {"loss_calls": list(calls)}))[2]

    finding = judged(early, *[held_out] * 4)
    assert finding.severity == "warning"
    assert "In validation after the first third of the run it answered 0 for nearly every sample" in finding.summary
    assert judged(early).severity == "info"
    assert judged(early, *[held_out | {"target_varies": 0.0}] * 4).severity == "info", "no rare sample was asked for"
    assert judged(early, *[held_out] * 3, held_out | {"answer_same": 0.7}).severity == "info"


def test_one_rare_class_is_named(make) -> None:
    finding = make.check("class-imbalance", skewed(make))[2]
    assert "gradients come from class 1 so rarely that it may never be learned" in finding.summary
    assert "or sample class 1 more often" in finding.fix
    assert finding.verify == "Judge the model by precision and recall of class 1."
    made = skewed(make)
    rows = [row | {"classes": '{"0": 61, "1": 2, "2": 1}'} for row in made.tables["batches"].records()]
    several = make.check("class-imbalance", make.process(more={"batches": rows}))[2]
    assert "from the other classes so rarely that they may" in several.summary
    assert "sample the rare ones more often" in several.fix


@pytest.mark.parametrize(
    ("text", "weighed"),
    [
        ("criterion = nn.CrossEntropyLoss(weight=rarity)", True),
        ("    nn.BCEWithLogitsLoss(\n        pos_weight=ratio,\n    )", True),
        ("criterion = nn.CrossEntropyLoss()", False),
        ("loss = criterion(net(x), y) + weight * penalty(net)", False),
    ],
)
def test_a_loss_that_was_made_with_weights_is_not_advised_to_have_some(make, text, weighed) -> None:
    made = skewed(make)
    sites = [
        {"site": 1, "role": "loss", "file": "a.py", "line": 70, "function": "main", "source": "loss = crit(net(x), y)"}
        | {"excerpt_line": 60, "excerpt": f"{text}\n" + "\n" * 9 + "loss = crit(net(x), y)"},
    ]
    more = {name: list(made.tables[name].records()) for name in ("batches", "loss_calls")}
    _, _, finding = make.check("class-imbalance", make.process(sites=sites, more=more))
    assert ("the loss is given a weight" in finding.fix) == weighed
    assert ("Unless you already do" in finding.fix) != weighed
    assert ("WeightedRandomSampler" in finding.fix_code) != weighed, "it would count rare classes twice"
    assert ("# of class 1" in finding.fix_code) == weighed
    if weighed:
        assert finding.location.source.strip().startswith(("criterion", "pos_weight"))
        assert f"in line {finding.location.line}" in finding.fix


@pytest.mark.parametrize(
    ("held_out", "severity"),
    [
        ({}, "warning"),
        ({"answer_same": 0.9}, "info"),  # it tells some of the others
        ({"answer": 1}, "info"),
        ({"target_varies": 0.1}, "info"),  # next to none of the others is among them
    ],
)
def test_one_answer_in_a_validation_that_holds_more_of_the_others(make, held_out, severity) -> None:
    process = skewed(make, input_shape="8x2")
    calls = list(process.tables["loss_calls"].records())
    call = calls[0] | {"training": False, "input_shape": "256x2", "target_varies": 0.5} | held_out
    calls += [call | {"step": step} for step in (200, 300)]
    batches = list(process.tables["batches"].records())
    _, _, finding = make.check("class-imbalance", make.process(more={"batches": batches, "loss_calls": calls}))
    assert finding.severity == severity


@pytest.mark.parametrize(("held", "line"), [('{"0": 50, "1": 14}', 13), ('{"0": 60, "1": 4}', 70)])
def test_a_sampler_that_draws_the_frequent_class_the_more(make, held, line) -> None:
    process = skewed(make)
    batches = list(process.tables["batches"].records())
    batches += [row | {"trained": False, "loader": 1, "classes": held} for row in batches]
    text = "    sampler = pick(\n        weights=share[y],\n    )\n    loader = DataLoader(x, sampler=sampler)"
    sites = [
        {"site": 1, "role": "loss", "file": "a.py", "line": 70, "function": "main", "source": "loss = f(net(x), y)"},
        {"site": 2, "role": "dataloader", "file": "a.py", "line": 15, "function": "main", "excerpt_line": 12}
        | {"excerpt": text, "source": "loader = DataLoader(x, sampler=sampler)"},
    ]
    loaders = [{"loader": 0, "sampler": "WeightedRandomSampler", "made_at": 2}]
    more = {"batches": batches, "loss_calls": list(process.tables["loss_calls"].records())}
    steps = make.steps() | {"loader": [0] * 400}
    _, _, finding = make.check("class-imbalance", make.process(steps, sites=sites, loaders=loaders, more=more))
    assert finding.location.line == line
    assert ("draws this class more often than it comes there" in finding.summary) == (line == 13)
    assert finding.fix.startswith("Weight each sample") == (line == 13)


@pytest.mark.parametrize(
    ("call", "loader", "code"),
    [
        ("trainer.train()", 0, "def _get_train_sampler(self, *args):"),
        ("opt.step()", 0, "loader = DataLoader(x, sampler=sampler)"),
        ("opt.step()", None, "index = torch.multinomial(weights, batch_size"),
    ],
)
def test_rare_classes_are_drawn_where_batches_are_made(make, call: str, loader: int | None, code: str) -> None:
    """By the Trainer's own method, by the script's loader, or by the loop."""
    place = {"file": "a.py", "function": "main", "excerpt_line": 15}
    made = call if "train" in call else "loader = DataLoader(x, shuffle=True)"
    sites = [
        place | {"site": 2, "role": "dataloader", "line": 15, "source": made, "excerpt": made},
        place | {"site": 3, "role": "step", "line": 17, "source": call},
    ]
    tables = {name: list(skewed(make).tables[name].records()) for name in ("batches", "loss_calls")}
    loaders = [{"loader": 0, "dataset": "Cards", "length": 10, "batch_size": 64, "made_at": 2}] * (loader is not None)
    steps = make.steps() | {"loader": [loader] * 400}
    finding = make.check("class-imbalance", make.process(steps, sites=sites, loaders=loaders, more=tables))[2]
    assert code in finding.fix_code
    assert "classes = labels.long().flatten()" in finding.fix_code, "bincount refuses the floats of a binary loss"
    assert ("DataLoader" in finding.fix_code) == code.startswith("loader")


def test_batches_that_were_looked_at_because_of_their_loss_say_nothing_of_the_shares(make) -> None:
    """A rare class costs more, so that such batches hold more of it than others do."""
    process = skewed(make)
    rows = [row | {"alert": False} for row in process.tables["batches"].records()]
    odd = [row | {"batch": 90 + at, "step": 90 + at, "alert": True} for at, row in enumerate(rows)]
    odd = [row | {"classes": '{"0": 50, "1": 14}'} for row in odd]
    calls = list(process.tables["loss_calls"].records())
    _, _, finding = make.check("class-imbalance", make.process(more={"batches": rows + odd, "loss_calls": calls}))
    assert finding.title.startswith("95% of the targets")
    assert "Of 512 targets checked" in finding.summary
    few = make.process(more={"batches": rows[:1] + odd, "loss_calls": calls})
    assert make.check("class-imbalance", few)[0] == "passed", "without them there are too few"


def test_the_loader_is_named_where_a_framework_computes_the_loss(make) -> None:
    sites = [
        {"site": 1, "role": role, "file": "a.py", "line": 95, "function": "main", "source": "trainer.run(loader)"}
        for role in ("loss", "backward", "step")
    ]
    made = {"site": 2, "role": "dataloader", "file": "a.py", "line": 63, "function": "main", "source": "DataLoader(x)"}
    tables = {name: list(skewed(make).tables[name].records()) for name in ("batches", "loss_calls")}
    loaders = [{"loader": 0, "dataset": "Cards", "length": 10, "batch_size": 64, "num_workers": 0, "made_at": 2}]
    steps = make.steps() | {"loader": [0] * 400}
    process = make.process(steps, sites=[*sites, made], loaders=loaders, more=tables)
    assert make.check("class-imbalance", process)[2].location.line == 63
    own = [row | {"line": 90, "source": "loss = criterion(x, y)"} if row["role"] == "loss" else row for row in sites]
    assert (
        make.check("class-imbalance", make.process(steps, sites=[*own, made], loaders=loaders, more=tables))[
            2
        ].location.line
        == 90
    )


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("train = DataLoader(data, batch_size=64, shuffle=True)", 63),
        ("train = DataLoader(data, 64, True)", 63),
        ("train = make_loader(data)", 90),  # the example has a call of its own
        ("train = DataLoader(data, batch_sampler=groups)", 90),
    ],
)
def test_the_line_is_the_one_that_the_example_changes(make, source: str, place: int) -> None:
    loss = {"site": 1, "role": "loss", "file": "a.py", "line": 90, "function": "main", "source": "loss = f(net(x), y)"}
    made = {"site": 2, "role": "dataloader", "file": "a.py", "line": 63, "function": "main", "source": source}
    made |= {"excerpt": f"    {source}", "excerpt_line": 63}
    tables = {name: list(skewed(make).tables[name].records()) for name in ("batches", "loss_calls")}
    loaders = [{"loader": 0, "dataset": "Cards", "length": 10, "batch_size": 64, "num_workers": 0, "made_at": 2}]
    process = make.process(make.steps() | {"loader": [0] * 400}, sites=[loss, made], loaders=loaders, more=tables)
    finding = make.check("class-imbalance", process)[2]
    assert finding.location.line == place
    written = source.replace(", shuffle=True", "").replace(", True", "").replace(")", ", sampler=sampler)")
    assert (written in finding.fix_code) == (place == 63), "torch takes no sampler beside shuffle=True"


@pytest.mark.parametrize(
    ("weight", "line", "added", "told"),
    [
        (3 / 61, "crit = nn.BCEWithLogitsLoss(pos_weight=n_pos / n_neg)", "pos_weight=n_neg / n_pos", True),
        (3 / 61, "crit = nn.CrossEntropyLoss(weight=shares)", None, True),
        (0.5, "crit = nn.BCEWithLogitsLoss(pos_weight=half / all)", None, True),  # no ratio of the classes
        (61 / 3, "crit = nn.BCEWithLogitsLoss(pos_weight=n_neg / n_pos)", None, False),
        (1.0, "crit = nn.BCEWithLogitsLoss(pos_weight=one)", None, False),
        (None, "crit = nn.BCEWithLogitsLoss(pos_weight=n_pos / n_neg)", None, False),  # not recorded
    ],
)
def test_weights_that_make_the_rare_class_rarer(make, weight, line, added, told) -> None:
    process = skewed(make, weight_of_one=weight)
    made = {"site": 70, "role": "optimizer", "file": "a.py", "line": 9, "function": "main", "source": line}
    made |= {"excerpt": f"    {line}", "excerpt_line": 9}
    tables = {name: list(process.tables[name].records()) for name in ("batches", "loss_calls")}
    finding = make.check("class-imbalance", make.process(sites=[made], more=tables))[2]
    assert ("rarer still" in finding.summary) == finding.fix.startswith("Turn the ratio over") == told
    assert (finding.diff.added if finding.diff else None) == (added and [f"    crit = nn.BCEWithLogitsLoss({added})"])
    other = {"function": "cross_entropy", "training": True, "step": 9, "input_shape": "64x2", "target_shape": "64"}
    several = tables | {"loss_calls": [*tables["loss_calls"], other]}
    assert "rarer still" not in make.check("class-imbalance", make.process(sites=[made], more=several))[2].summary
    if told:
        assert finding.location.line == 9
        assert finding.diff or "\nweight = torch.tensor([1.0, 20.3])" in finding.fix_code
