"""Rules about what should be equal or should differ: ranks, averaged copies, two optimizers, workers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers.rules.distributed.ranks_out_of_sync import own_seeds

COUNT = 400
LOOKS = (1, 2, 11, 16, 24, 36)


def rank(make: Any, number: int, norms: list[float], lr: float = 0.01, gradient: float | None = None) -> Any:
    rows = [
        {"step": step, "optimizer": 0, "parameter": "l.weight", "weight_norm": norm, "lr": lr}
        | ({} if gradient is None else {"grad_norm": gradient / step})
        for step, norm in zip(LOOKS, norms, strict=True)
    ]
    process = make.process(facts={"rank": number}, more={"parameters": rows})
    process.name = f"rank{number:05d}"
    return process


def judged(make: Any, *processes: Any) -> Any:
    return make.check("ranks-out-of-sync", *processes)


NORMS = [4.7, 4.71, 4.72, 4.73, 4.74, 4.75]


def test_ranks_that_drift_apart(make) -> None:
    apart = [4.7, 4.71 + 1e-4, 4.72 + 2e-4, 4.73 + 1e-3, 4.74 + 2e-3, 4.75 + 4e-3]
    status, _, finding = judged(make, rank(make, 0, NORMS), rank(make, 1, apart))
    assert (status, finding.severity, finding.ranks) == ("fired", "critical", [0, 1])
    losses, distance = finding.charts
    assert [line.name for line in losses.lines] == ["rank 0", "rank 1"]
    assert distance.x == [float(step) for step in LOOKS]
    assert distance.lines[0].y[0] == 0.0
    assert distance.lines[0].y[-1] == pytest.approx(100 * math.log(apart[-1] / NORMS[-1]), rel=0.6)


def halves(make: Any, number: int, norms: list[float], **more: Any) -> Any:
    """A rank of an encoder whose norms are those of `NORMS`, and a decoder with the same names of tensors."""
    rows = [
        {"step": step, "optimizer": 0, "parameter": name, "weight_norm": norm, "lr": 0.01}
        for step, *both in zip(LOOKS, NORMS, norms, strict=True)
        for norm in both
        for name in (("l.weight",) if norm is both[0] else ("l.weight", "l.bias"))
    ]
    process = make.process(facts={"rank": number}, more={"parameters": rows}, **more)
    process.name = f"rank{number:05d}"
    return process


def test_a_part_of_the_model_that_is_not_in_the_wrapper(make) -> None:
    models = [{"model": 0, "name": "DistributedDataParallel", "called_as": "self.encoder", "parameters": 1},
              {"model": 1, "name": "Decoder", "called_as": "self.decoder", "parameters": 2}]  # fmt: skip
    own = [one + 1.0 for one in NORMS]
    drifted = [one + 0.01 * index for index, one in enumerate(own)]
    status, _, finding = judged(make, halves(make, 0, own, models=models), halves(make, 1, drifted))
    assert status == "fired"
    assert finding.title == ("self.decoder is outside of DistributedDataParallel: its weights drift apart on 2 ranks")
    assert "all of self.decoder: l.weight and l.bias" in finding.summary
    assert "while 1 tensor inside of DistributedDataParallel is equal" in finding.summary
    alike = [*models, {"model": 2, "name": "Head", "called_as": "head", "parameters": 2}]
    unnamed = judged(make, halves(make, 0, own, models=alike), halves(make, 1, drifted))[2]
    assert unnamed.title.startswith("2 tensors are outside of DistributedDataParallel")
    bare = judged(make, halves(make, 0, own), halves(make, 1, drifted))[2]
    assert bare.title.startswith("2 of 3 tensors drift apart on 2 ranks"), "no wrapper, and something averages one"
    assert "(l.weight and l.bias). 1 other is trained and stays equal" in bare.summary
    assert "nothing averages" not in bare.summary
    assert judged(make, halves(make, 0, own, models=models), halves(make, 1, own))[0] == "passed"


def test_a_wrapper_that_is_passed_by_beside_one_that_is_called(make) -> None:
    models = [{"model": 0, "name": "DistributedDataParallel", "called_as": "body", "parameters": 1},
              {"model": 1, "name": "Sequential", "called_as": "self.layers", "parameters": 2}]  # fmt: skip
    own = [one + 1.0 for one in NORMS]
    drifted = [one + 0.01 * index for index, one in enumerate(own)]
    source = "head = DistributedDataParallel(Head())"
    sites = [{"site": 8, "role": "wrapper", "file": "train.py", "line": 40, "function": "main", "source": source}]
    finding = judged(make, halves(make, 0, own, models=models, sites=sites), halves(make, 1, drifted))[2]
    assert finding.title == "head is never called: the weights of 2 ranks drift apart"
    assert "those of 2 tensors, while 1 tensor inside of another DistributedDataParallel is equal" in finding.summary
    assert finding.location.line == 40
    models[1]["parameters"] = 4  # not what drifts apart
    other = judged(make, halves(make, 0, own, models=models, sites=sites), halves(make, 1, drifted))[2]
    assert other.title.startswith("2 tensors are outside of DistributedDataParallel")


def unfreezing(make: Any, number: int, body: list[float], **more: Any) -> Any:
    """A rank that trains its head from the start, and its body from the fourth look on."""
    rows = [
        {"step": step, "optimizer": 0, "parameter": name, "weight_norm": norm, "lr": 0.01}
        for step, head, other in zip(LOOKS, NORMS, body, strict=True)
        for name, norm in (("head.weight", head), ("body.weight", other))
        if math.isfinite(norm)
    ]
    process = make.process(facts={"rank": number}, more={"parameters": rows}, **more)
    process.name = f"rank{number:05d}"
    return process


def test_layers_that_are_unfrozen_behind_the_wrapper(make) -> None:
    models = [{"model": 0, "name": "DistributedDataParallel", "called_as": "ddp", "parameters": 2}]
    frozen = [math.nan] * 3
    own, other = [*frozen, 2.5, 2.6, 2.7], [*frozen, 2.5 + 1e-3, 2.6 + 2e-3, 2.7 + 5e-3]
    status, _, finding = judged(make, unfreezing(make, 0, own, models=models), unfreezing(make, 1, other))
    assert (status, finding.first_step) == ("fired", LOOKS[3])
    assert finding.title == "1 tensor, unfrozen after DistributedDataParallel was made, drifts apart on 2 ranks"
    assert "From step 16 on they differ" in finding.summary
    assert "(body.weight), which had no gradients before. 1 tensor that trained from the start is" in finding.summary
    assert judged(make, unfreezing(make, 0, own, models=models), unfreezing(make, 1, own))[0] == "passed"
    meets = [*frozen, 2.5 + 1e-3, 2.6, 2.7 + 5e-3]
    assert judged(make, unfreezing(make, 0, own, models=models), unfreezing(make, 1, meets))[0] == "passed"


def test_tensors_that_never_train_are_not_taken_for_averaged_ones(make) -> None:
    """A frozen part is equal on all ranks, whatever becomes of the gradients of the other one."""
    apart = [4.7, 4.71 + 1e-4, 4.72 + 2e-4, 4.73 + 1e-3, 4.74 + 2e-3, 4.75 + 4e-3]
    for norms, said in (([2.5] * 6, "nothing averages the gradients"), (NORMS, "1 other is trained and stays equal")):
        ranks = [rank(make, 0, NORMS), rank(make, 1, apart)]
        for process in ranks:
            rows = list(process.tables["parameters"].records())
            rows += [
                row | {"parameter": "body.weight", "weight_norm": norm} for row, norm in zip(rows, norms, strict=True)
            ]
            parameters = make.process(more={"parameters": rows}).tables["parameters"]
            process.tables = {**process.tables, "parameters": parameters}
        assert said in judged(make, *ranks)[2].summary


def test_ranks_that_average_gradients_of_models_that_were_never_equal(make) -> None:
    own, other = rank(make, 0, NORMS, gradient=0.3), [one + 1.0 for one in NORMS]
    status, _, finding = judged(make, own, rank(make, 1, other, gradient=0.3))
    assert (status, finding.ranks, finding.first_step) == ("fired", [0, 1], 1)
    assert "differ from the start" in finding.title
    assert judged(make, own, rank(make, 1, other, gradient=0.4))[0] == "passed", "parts of one model"


@pytest.mark.parametrize(
    ("seeds", "named"),
    [
        ({10: "torch.manual_seed(args.seed + rank)"}, True),
        ({10: "set_seed(7 + int(os.environ['RANK']))"}, True),
        ({10: "torch.manual_seed(args.seed)"}, False),
        ({10: "g = torch.Generator().manual_seed(rank)"}, False),  # of data, say
        ({60: "torch.manual_seed(args.seed + rank)"}, False),  # below what is made
        ({10: "torch.manual_seed(rank)", 12: "torch.manual_seed(0)"}, False),
    ],
)
def test_a_seed_of_each_rank_above_the_optimizer(make: Any, seeds: dict[int, str], named: bool) -> None:
    sites = [
        {"site": line, "role": "seed", "file": "a.py", "function": "main", "line": line, "source": source}
        for line, source in seeds.items()
    ]
    made = {"site": 2, "role": "optimizer", "file": "a.py", "function": "main", "line": 40, "source": "opt = SGD(p)"}
    optimizer = {"optimizer": 0, "name": "SGD", "groups": 1, "parameters": 4, "elements": 90, "site": 1, "made_at": 2}
    found = own_seeds.line(make.process(optimizers=[optimizer], sites=[made, *sites]))
    assert (found is not None) == named


@pytest.mark.parametrize(
    ("norms", "lr"),
    [
        (NORMS, 0.01),  # averaged gradients
        ([one + 1.0 for one in NORMS], 0.01),  # parts of one model
        ([4.7, 4.71, 4.73, 4.73, 4.75, 4.75], 0.01),  # averaged every few steps
        ([one + 0.1 * index for index, one in enumerate(NORMS)], 0.1),  # a sweep over rates, one on each rank
    ],
)
def test_ranks_that_need_not_be_equal(make, norms, lr) -> None:
    assert judged(make, rank(make, 0, NORMS), rank(make, 1, norms, lr))[0] == "passed"


def test_ranks_that_average_and_update_by_rates_of_their_own(make) -> None:
    own = rank(make, 0, NORMS, gradient=0.3)
    drifted = [one + 0.01 * index for index, one in enumerate(NORMS)]
    status, _, finding = judged(make, own, rank(make, 1, drifted, lr=0.02, gradient=0.3))
    assert (status, finding.ranks, finding.severity, finding.confidence) == ("fired", [0, 1], "critical", "likely")
    assert "differ in lr" in finding.title
    assert "At step 1, lr is 0.01 on rank 0 and 0.02 on rank 1." in finding.summary
    assert judged(make, own, rank(make, 1, drifted, lr=0.02, gradient=0.4))[0] == "passed", "a sweep"


def with_settings(make: Any, number: int, norms: list[float], gradient: float, **columns: Any) -> Any:
    """A rank of DistributedDataParallel; `columns` of its steps, and `other_options` of its optimizer."""
    rows = [
        {"step": step, "optimizer": 0, "parameter": "l.weight", "weight_norm": norm, "lr": 0.01}
        | {"grad_norm": gradient / step}
        for step, norm in zip(LOOKS, norms, strict=True)
    ]
    optimizers = [{"optimizer": 0, "name": "AdamW", "options": '{"lr": 0.01, "weight_decay": 0.1}'}]
    optimizers[0] |= {"other_options": columns.pop("other_options", None)}
    steps = make.steps() | {name: [value] * COUNT for name, value in columns.items()} | {"batch_size": [8] * COUNT}
    models = [{"model": 0, "name": "DistributedDataParallel", "parameters": 4, "elements": 899}]
    more = {"parameters": rows, "optimizers": optimizers}
    process = make.process(steps, facts={"rank": number}, models=models, more=more)
    process.name = f"rank{number:05d}"
    return process


DRIFTED = [one + 0.01 * index for index, one in enumerate(NORMS)]


@pytest.mark.parametrize(
    ("column", "own", "other", "said"),
    [
        ("clip_max_norm", 1.0, 0.05, "the clip's max_norm is 1 on rank 0 and 0.05 on rank 1"),
        ("scale", 256.0, 16.0, "the GradScaler's scale is 256 on rank 0 and 16 on rank 1"),
        ("backwards", 1, 2, "the number of backwards is 1 on rank 0 and 2 on rank 1"),
    ],
)
def test_ranks_that_treat_averaged_gradients_differently(make, column, own, other, said) -> None:
    first = with_settings(make, 0, NORMS, 0.3, **{column: own})
    status, _, finding = judged(make, first, with_settings(make, 1, DRIFTED, 0.4, **{column: other}))
    assert status == "fired"
    assert f"At step 1, {said}." in finding.summary
    assert "averaged in backward" in finding.summary
    assert not finding.fix_code, "the model is wrapped already"
    alike = judged(make, first, with_settings(make, 1, DRIFTED, 0.4, **{column: own}))[2]
    assert "not everything in their gradients is averaged" in alike.summary
    assert judged(make, first, with_settings(make, 1, NORMS, 0.3, **{column: other}))[0] == "passed", "equal weights"
    parts = [one + 1.0 for one in NORMS]
    assert judged(make, first, with_settings(make, 1, parts, 0.4, **{column: other}))[0] == "passed", "parts of a model"


def test_options_of_a_later_group_that_differ(make) -> None:
    own = with_settings(make, 0, NORMS, 0.3)
    other = with_settings(make, 1, DRIFTED, 0.3, other_options='[{}, {"weight_decay": 0.5}]')
    _, _, finding = judged(make, own, other)
    assert "Optimizers of 2 ranks differ in weight_decay of group 3" in finding.title
    assert "weight_decay of group 3 is 0.1 on rank 0 and 0.5 on rank 1" in finding.summary
    values = {one.name: one.value for one in finding.evidence}
    assert values["weight_decay of group 3"] == "0.1 on rank 0, 0.5 on rank 1"


def test_one_rank_has_nobody_to_agree_with(make) -> None:
    assert judged(make, rank(make, 0, NORMS))[0] == "skipped"


def copies(make: Any, losses: list[float], trained: bool = False, curve: Any = None, **more: Any) -> Any:
    evals = make.evals(len(losses), 40) | {
        "loss": losses,
        "trained": [trained] * len(losses),
        "model": [1] * len(losses),
    }
    evals |= more
    models = [{"model": number, "name": "Net", "parameters": 4, "elements": 899} for number in (0, 1)]
    links = [{"optimizer": 0, "model": 0}]
    steps = make.steps() | ({} if curve is None else {"loss": curve.tolist()})
    return make.check("ema-not-updated", make.process(steps, evals=evals, models=models, more={"links": links}))


def test_a_copy_that_never_changes(make) -> None:
    status, _, finding = copies(make, [1.113] * 6)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert finding.location.line == 60


LEARNED = 0.1 + np.exp(-np.arange(COUNT) / 60)  # a training loss from 1.1 to 0.1


def test_a_copy_whose_decay_is_too_slow_for_the_run(make) -> None:
    status, _, finding = copies(make, [1.09, 1.085, 1.08, 1.07, 1.065, 1.06], curve=LEARNED)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "decay is too slow" in finding.title
    assert "while the training loss fell from 1.0" in finding.summary


@pytest.mark.parametrize(
    ("losses", "curve"),
    [
        ([1.09, 1.06, 1.02, 0.97, 0.92, 0.86], LEARNED),  # late, but it follows
        ([0.14, 0.139, 0.138, 0.137, 0.136, 0.135], LEARNED),  # has converged
        ([1.09, 1.08, 1.09, 1.1, 1.11, 1.12], LEARNED),  # labels without a pattern are learned by heart
        ([1.09, 1.085, 1.08, 1.07, 1.065, 1.06], 0.7 + 0.4 * LEARNED),  # the model itself has learned little
        ([1.09, 1.09, 1.09, 1.09, 1.08, 1.07], LEARNED),  # an average that begins late
        ([220.0, 219.0, 218.0, 217.0, 216.0, 215.0], LEARNED),  # a sum, which is another scale
    ],
)
def test_copies_that_are_slow_rightly_or_cannot_be_compared(make, losses, curve) -> None:
    assert copies(make, losses, curve=curve)[0] == "passed"


def by_weights(make: Any, moved: list[float], changed: float, curve: Any = None, sites: Any = None, **more: Any) -> Any:
    """A copy that a metric alone is computed of, at a distance of 1 from a model that goes on."""
    count = len(moved)
    evals = make.evals(count, 40) | {"loss": [math.nan] * count, "losses": [0] * count, "forwards": [4] * count}
    evals |= {"trained": [False] * count, "model": [1] * count} | more
    models = [{"model": number, "name": "Net", "parameters": 4, "elements": 899} for number in (0, 1)]
    rows = [
        {"step": 40 * (i + 1), "model": 1, "of": 0, "changed": changed, "moved": one, "of_moved": 0.2 * i, "apart": 1.0}
        for i, one in enumerate(moved)
    ]
    steps = make.steps() | ({} if curve is None else {"loss": curve.tolist()})
    tables = {"links": [{"optimizer": 0, "model": 0}], "copies": rows}
    return make.check("ema-not-updated", make.process(steps, evals=evals, models=models, more=tables, sites=sites))


def test_a_copy_that_only_a_metric_is_computed_of(make) -> None:
    status, _, finding = by_weights(make, [0.0] * 6, 0.0)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert finding.title == "The copy of the model that is evaluated has not changed in 200 steps"
    assert "its weights have not moved since the first one, while the model's have." in finding.summary
    slow = [0.0, 0.01, 0.02, 0.03, 0.04, 0.05]
    status, _, finding = by_weights(make, slow, 1.0, LEARNED)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "5% as far as the model" in finding.title
    assert "with a decay of about 0.99975 per step, which averages over 4,000 steps" in finding.summary
    assert finding.fix.startswith("Lower its decay"), "it is updated"
    line = {"site": 60, "role": "average", "file": "a.py", "line": 55, "function": "on_train_batch_end"}
    named = by_weights(make, slow, 1.0, LEARNED, sites=[line | {"source": "avg.lerp_(live, 1.0 - self.decay)"}])[2]
    assert "the decay of line 55" in named.fix_code
    assert "optimizer.step" not in named.fix_code, "a callback that updates the average makes no step"
    once = by_weights(make, [0.0, 0.01, 0.01, 0.01, 0.01, 0.01], 1.0, LEARNED)[2]
    assert "averages over 4" not in once.summary, "it is not updated all the time"
    assert once.fix.startswith("Update the average")
    status, reason, _ = by_weights(make, slow, 1.0, 0.7 + 0.4 * LEARNED)
    assert (status, "move, by 5%" in reason) == ("passed", True), "the model itself has learned little"
    assert by_weights(make, [0.0, 0.0, 0.0, 0.3, 0.6, 0.9], 1.0, LEARNED)[0] == "passed", "an average that begins late"
    assert by_weights(make, [0.0] * 2, 0.0)[0] == "skipped"
    assert by_weights(make, [0.0] * 6, 0.0, trained=[False, True] * 3)[0] == "skipped", "beside the model"


@pytest.mark.parametrize(
    ("moved", "last", "curve", "status"),
    [
        (0.17, 1.0, 0.55 + LEARNED / 2, "fired"),
        (0.17, 0.7, 0.55 + LEARNED / 2, "passed"),  # it is nearer to the model's loss
        (0.17, 1.0, 0.9 + 0.2 * LEARNED, "passed"),  # the model itself has learned little
        (0.17, 70.0, 1.0 + 0.0 * LEARNED, "passed"),
        (0.7, 1.0, 0.55 + LEARNED / 2, "passed"),  # most of it is what the model learned
    ],
)
def test_an_average_that_is_mostly_what_it_began_with(make, moved: float, last: float, curve, status: str) -> None:
    """It moves steadily, and farther than a tenth of the model's way, in a run that its decay looks beyond."""
    losses = np.linspace(1.05, last, 6).tolist()
    way = np.linspace(0.0, moved, 6).tolist()
    found, _, finding = by_weights(make, way, 1.0, curve, loss=losses, losses=[1] * 6)
    assert found == status
    if finding is not None:
        assert finding.title == "The averaged copy moved 17% as far as the model in 200 steps"
        values = {one.name: one.value for one in finding.evidence}
        assert values["share of the weights it began with still in it"] == pytest.approx(0.84, abs=0.01)


def put_in(make: Any, moved: list[float], apart: float, losses: list[float], sites: Any = None) -> Any:
    """Weights that the model itself is evaluated with, every 40 steps, at a distance of 1 from its own."""
    evals = make.evals(6, 40) | {"loss": losses, "trained": [True] * 6, "model": [0] * 6}
    rows = [
        {
            "step": 40 * i + 40,
            "model": 0,
            "changed": float(bool(one)),
            "moved": one,
            "of_moved": 0.2 * i,
            "apart": apart,
        }
        for i, one in enumerate(moved)
    ]
    models = [{"model": 0, "name": "Net", "parameters": 4, "elements": 899}]
    tables = {"links": [{"optimizer": 0, "model": 0}], "put_in": rows}
    steps = make.steps() | {"loss": LEARNED.tolist()}
    return make.check("ema-not-updated", make.process(steps, evals=evals, models=models, more=tables, sites=sites))


def test_weights_that_are_put_into_the_model_to_evaluate_it(make) -> None:
    slow, high, low = [0.0, 0.01, 0.02, 0.03, 0.04, 0.05], [1.1] * 6, [0.3] * 6
    status, _, finding = put_in(make, slow, 1.0, high)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "uses weights that are put into the model for it and taken out again" in finding.summary
    assert finding.title == "The averaged weights moved 5% as far as the model in 200 steps"
    forgotten = put_in(make, [0.0] * 6, 1.0, high)
    assert (forgotten[0], "have not changed in 200 steps" in forgotten[2].title) == ("fired", True)
    assert put_in(make, [0.0] * 6, 1.0, low)[0] == "skipped", "perhaps the best weights so far"
    assert put_in(make, slow, 0.0, high)[0] == "skipped", "the model's own weights"
    assert put_in(make, [0.0, 0.1, 0.3, 0.5, 0.7, 0.9], 0.3, low)[0] == "passed", "an average that follows"


@pytest.mark.parametrize(
    ("made", "line", "fix"),
    [
        ("ema = EMAHandler(net, momentum=0.0003)", 12, "Give the model a larger weight than 0.0003"),
        ("ema = EMA(net, 0.9997)", 12, "Lower its decay"),
        ("ema = EMA(net, decay=0.99)", 50, "Line 50 updates the average too seldom"),
        ("ema = EMA(net, options)", 12, "Lower its decay"),
    ],
)
def test_the_line_of_an_average_that_is_too_slow(make, made: str, line: int, fix: str) -> None:
    """It moves by 0.01 in 40 steps, where it is 1 away: by a weight of 0.00025."""
    sites = [
        {"site": 61, "role": "average-made", "file": "a.py", "line": 12, "function": "main", "source": made},
        {
            "site": 62,
            "role": "average-update",
            "file": "a.py",
            "line": 50,
            "function": "main",
            "source": "ema.update()",
        },
    ]
    finding = put_in(make, [0.0, 0.01, 0.02, 0.03, 0.04, 0.05], 1.0, [1.1] * 6, sites)[2]
    assert (finding.location.line, finding.fix.startswith(fix)) == (line, True)
    assert ("ran about once in 40 steps" in finding.summary) == (line == 50)
    if "0.9997" in made:
        assert "ema = EMA(net, 0.958)" in finding.fix_code


def test_copies_that_follow_and_baselines(make) -> None:
    assert copies(make, [1.1, 1.09, 1.08, 1.06, 1.05, 1.04])[0] == "passed"
    assert copies(make, [1.1] * 2)[0] == "skipped"
    assert copies(make, [1.1] * 6, trained=True)[0] == "skipped", "no copy"
    both = {"model": [1, 0] * 3} | {"trained": [False, True] * 3}
    beside = make.evals(6, 40) | {"loss": [1.1, 0.9, 1.1, 0.8, 1.1, 0.7]} | both
    models = [{"model": number, "name": "Net", "parameters": 4, "elements": 899} for number in (0, 1)]
    links = {"links": [{"optimizer": 0, "model": 0}]}
    baseline = make.process(evals=beside, models=models, more=links)
    assert make.check("ema-not-updated", baseline)[0] == "passed", "a baseline beside the model"
    assert make.check("ema-not-updated", make.process())[0] == "skipped"


def two(make: Any, shares: int, same: bool, follows: bool = False, parameters: int = 4) -> Any:
    number = [0] * 200 + [1] * 200 if follows else [index % 2 for index in range(COUNT)]
    losses = [1.0 / (index // 2 + 1) if same else 1.0 / (index + 1) for index in range(COUNT)]
    optimizers = [
        {"optimizer": 0, "name": "Adam", "parameters": parameters},
        {"optimizer": 1, "name": "Adam", "parameters": parameters, "shares": shares or None, "shares_with": 0},
    ]
    steps = make.steps() | {"optimizer": number, "loss": losses}
    return make.check("shared-parameter-two-optimizers", make.process(steps, optimizers=optimizers))


def test_two_optimizers_of_one_tensor(make) -> None:
    status, _, finding = two(make, 2, same=True)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "certain")


def test_optimizers_that_take_turns_on_what_they_share(make) -> None:
    status, _, finding = two(make, 2, same=False)
    assert (status, finding.severity, finding.confidence) == ("fired", "info", "likely")


def test_optimizers_that_share_nothing_or_all(make) -> None:
    assert two(make, 0, same=True)[0] == "passed", "a part of the model for each"
    assert two(make, 2, same=False, parameters=2)[0] == "passed", "one for the other, as a wrapper is"
    assert two(make, 2, same=False, follows=True)[0] == "passed", "one after the other"
    assert make.check("shared-parameter-two-optimizers", make.process())[0] == "skipped"


def loading(make: Any, workers: int, wait: float, cpus: int = 2, kept: bool = False) -> Any:
    loaders = [{"loader": 0, "dataset": "Images", "iterable": False, "length": 100, "num_workers": workers}]
    loaders[0]["persistent_workers"] = kept
    steps = make.steps() | {"loader_wait": [wait] * COUNT}
    return make.check("too-many-workers", make.process(steps, loaders=loaders, facts={"cpus": cpus}))


def test_workers_beyond_the_processors(make) -> None:
    status, _, finding = loading(make, 10, 0.02)
    assert (status, finding.severity) == ("fired", "warning")
    assert "for workers to start" in finding.summary
    assert "with persistent_workers=True" in finding.fix
    kept = loading(make, 10, 0.02, kept=True)[2]
    assert "for the first batches of epochs" in kept.summary, "they start once"
    assert "persistent_workers" not in kept.fix
    assert loading(make, 10, 0.001)[0] == "passed", "nobody waits"
    assert loading(make, 4, 0.02)[0] == "passed", "two for each processor"
    assert loading(make, 10, 0.02, cpus=16)[0] == "passed"
    assert make.check("too-many-workers", make.process(make.steps() | {"loader": [None] * COUNT}))[0] == "skipped"


def test_optimizers_that_differ_are_told_from_gradients_that_nobody_averages(make) -> None:
    apart = [4.7, 4.71 + 1e-4, 4.72 + 2e-4, 4.73 + 1e-3, 4.74 + 2e-3, 4.75 + 4e-3]
    ranks = [rank(make, 0, NORMS), rank(make, 1, apart)]
    assert "nothing averages the gradients" in judged(make, *ranks)[2].summary
    for process in ranks:
        rows = [{**row, "grad_norm": 1.5} for row in process.tables["parameters"].records()]
        process.tables = {**process.tables, "parameters": make.process(more={"parameters": rows}).tables["parameters"]}
    finding = judged(make, *ranks)[2]
    assert "the optimizers make different updates" in finding.summary
    assert finding.fix_code == ""
