"""Rules about several backwards per step, or none, and the look-alikes that they must not fire on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import lines_of
from tracelyze.analyzers.computed.optimization import clip_values

COUNT = 400


def accumulating(make, count: int = 4, **columns):
    """Steps of `count` micro-batches each."""
    return make.steps() | {"backwards": [count] * COUNT, "loader_batches": [count] * COUNT} | columns


def discarding(make, **columns):
    discarded = {"grads_discarded": [None] + [8] * (COUNT - 1), "clips": [0] * COUNT}
    return accumulating(make, **(discarded | columns))


def test_discarded_microbatches(make) -> None:
    status, _, finding = make.check("discarded-microbatches", make.process(discarding(make)))
    assert status == "fired"
    assert (finding.severity, finding.confidence, finding.first_step) == ("critical", "certain", 1)
    assert finding.title == "The gradients are cleared between the 4 backwards of a step", "it may be once in a step"
    assert finding.cost.share == pytest.approx(0.25, abs=0.01), "at least one of them is lost"
    line = {"site": 9, "role": "clears", "file": "t.py", "line": 17, "function": "f", "source": "opt.zero_grad()"}
    _, _, finding = make.check("discarded-microbatches", make.process(discarding(make), sites=[line]))
    assert finding.location.line == 17
    assert "Line 17 clears the gradients" in finding.title
    assert finding.fix.startswith("Call zero_grad right behind"), "the step stands in another file"
    step = line | {"site": 8, "role": "step", "line": 40, "source": "self.opt.step()"}
    _, _, finding = make.check("discarded-microbatches", make.process(discarding(make), sites=[line, step]))
    assert finding.fix.startswith("Move zero_grad from line 17 to right behind the optimizer's step (line 40)")
    assert finding.fix_code.endswith("self.opt.zero_grad()")
    none = line | {"role": "grad-set", "source": "p.grad = None"}
    scaled = line | {"role": "grad-set", "site": 10, "line": 60, "function": "g", "source": "p.grad = p.grad / 2"}
    _, _, finding = make.check("discarded-microbatches", make.process(discarding(make), sites=[none, scaled, step]))
    assert (finding.location.line, "clears" in finding.title) == (17, False)
    assert finding.fix.startswith("Move what clears the gradients from line 17 to right behind the optimizer's step")


EACH = """\
for i, (x, y) in enumerate(loader):
    opt.zero_grad()
    loss = criterion(model(x), y) / 4
    loss.backward()
    if i % 4 == 3:
        opt.step()"""


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (EACH, "3 of 4 micro-batches are thrown away: line 2 clears the gradients between the backwards"),
        (
            EACH.replace("    opt.zero_grad()", "    if i % 2:\n        opt.zero_grad()"),
            "Line 3 clears the gradients between the 4 backwards of a step",
        ),
    ],
)
def test_how_many_microbatches_are_lost_is_said_where_gradients_are_cleared_beside_each_backward(
    make, text: str, title: str
) -> None:
    sites = lines_of(text, clears="zero_grad", backward="backward", step="opt.step")
    finding = make.check("discarded-microbatches", make.process(discarding(make), sites=sites))[2]
    assert finding.title == title
    assert ("only the last micro-batch" in finding.summary) == (title[0] == "3")
    two = discarding(make, backwards=[2] * COUNT, loader_batches=[2] * COUNT)
    assert make.check("discarded-microbatches", make.process(two, sites=sites))[2].title.startswith("1 of 2")


BEHIND = EACH.replace("    opt.zero_grad()\n", "") + "\n{indent}opt.zero_grad()"


@pytest.mark.parametrize(
    ("text", "clears", "fix"),
    [
        (BEHIND.format(indent="    "), 6, "Move zero_grad from line 6 to right behind the optimizer's step (line 5)"),
        (
            EACH + "\n        opt.zero_grad()",
            2,
            "Take the clearing out of line 2: line 7, behind the step, clears once",
        ),
    ],
)
def test_what_clears_behind_the_step_already_need_not_be_moved_there(make, text: str, clears: int, fix: str) -> None:
    """The same line, out of the block of the step, clears after each micro-batch."""
    shared = {"file": "t.py", "function": "main", "excerpt_line": 1, "excerpt": text}
    lines = dict(enumerate((line.strip() for line in text.split("\n")), 1))
    sites = [
        shared | {"site": 10 * at + n, "role": role, "line": n, "source": line}
        for at, (role, word) in enumerate({"backward": "backward", "step": "opt.step", "clear-text": "zero"}.items())
        for n, line in lines.items()
        if word in line
    ]
    sites.append(shared | {"site": 99, "role": "clears", "line": clears, "source": lines[clears]})
    finding = make.check("discarded-microbatches", make.process(discarding(make), sites=sites))[2]
    assert finding.fix.startswith(fix)
    assert bool(finding.fix_code) == fix.startswith("Move")


def test_a_part_of_the_gradients_that_is_cleared_between_backwards_is_called_a_part(make) -> None:
    part = discarding(make, grads_discarded=[None] + [2] * (COUNT - 1))
    finding = make.check("discarded-microbatches", make.process(part))[2]
    assert finding.title == "2 of 8 gradients are cleared between the 4 backwards of a step"
    assert finding.cost is None, "the others accumulate"


@pytest.mark.parametrize("call", ["trainer.train()", "trainer.fit(model, loader)"])
def test_beside_a_trainer_no_line_of_the_script_is_there_for_the_clearing(make, call: str) -> None:
    """The loop that steps is the trainer's, and clears by itself."""
    sites = [
        {"site": 8, "role": "step", "file": "t.py", "line": 40, "function": "main", "source": call},
        {"site": 9, "role": "clears", "file": "t.py", "line": 17, "function": "f", "source": "model.zero_grad()"},
    ]
    discarded = make.check("discarded-microbatches", make.process(discarding(make), sites=sites))[2]
    assert discarded.fix.startswith("Take the clearing out of line 17: trainer.")
    cleared = make.steps() | {"grads_cleared": [8] * COUNT, "grads_none": [8] * COUNT}
    sites[1]["role"] = "clear-text"
    wrong = make.check("zero-grad-after-backward", make.process(cleared, sites=sites))[2]
    assert wrong.fix.startswith("Take the clearing out of line 17: trainer.")
    sites[1] |= {"role": "zero_grad", "line": 40, "source": call}
    unknown = make.check("zero-grad-after-backward", make.process(cleared, sites=sites))[2]
    assert unknown.fix.startswith("Take this clearing out: trainer.")
    never = make.steps() | {"grads_carried": [0] + [8] * (COUNT - 1)}
    missing = make.check("missing-zero-grad", make.process(never, sites=sites))[2]
    part = make.check(
        "partial-zero-grad", make.process(never | {"grads_carried": [0] + [3] * (COUNT - 1)}, sites=sites)
    )[2]
    assert "makes the steps" in missing.fix
    assert "makes the steps" in part.fix
    assert ("add_callback" in part.fix_code) == (call == "trainer.train()")
    assert [one.fix_code for one in (discarded, wrong, unknown, missing)] == [""] * 4


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({"grads_discarded": [None] + [0] * 5 + [None] * (COUNT - 6)}, "passed"),  # accumulates and clears once
        ({"backwards": [1] * COUNT}, "skipped"),  # nothing is accumulated
        ({"grads_discarded": [8 if index % 50 == 7 else 0 for index in range(COUNT)]}, "passed"),  # batches given up
        ({"grads_cleared": [None] * COUNT}, "skipped"),  # closure: LBFGS
        ({"backwards": [2] * COUNT, "loader_batches": [1] * COUNT}, "skipped"),  # SAM: two passes over a batch
        ({"loader_batches": [None] * COUNT}, "skipped"),  # nothing tells micro-batches from passes
        ({"clips": [4] * COUNT}, "skipped"),  # private training: clipped sums are kept elsewhere
        ({"grads_changes": [-1] * COUNT}, "skipped"),  # sums of the script's own, which take the gradients' place
        ({"grads_changes": [1] * COUNT}, "skipped"),  # or are written into them
        ({"grads_changes": [1] * COUNT, "clips": [1] * COUNT}, "fired"),  # the change is a clip
        ({"optimizer": [index % 2 for index in range(COUNT)]}, "skipped"),  # GAN
    ],
)
def test_discarded_microbatches_is_silent(make, columns, status) -> None:
    assert make.check("discarded-microbatches", make.process(discarding(make, **columns)))[0] == status


def clipping(make, **columns):
    return accumulating(make, **({"clips": [4] * COUNT, "clip_max_norm": [0.5] * COUNT} | columns))


def test_clip_per_microbatch(make) -> None:
    status, _, finding = make.check("clip-per-microbatch", make.process(clipping(make)))
    assert status == "fired"
    assert (finding.severity, finding.confidence) == ("warning", "likely")
    assert "0.5" in finding.fix_code


def test_clippings_that_follow_the_number_of_backwards_are_certain(make) -> None:
    counts = [3 if index % 50 == 49 else 4 for index in range(COUNT)]
    steps = clipping(make, clips=counts, backwards=counts, loader_batches=counts)
    finding = make.check("clip-per-microbatch", make.process(steps))[2]
    assert finding.confidence == "certain"
    assert "usually 4 times per step" in finding.title, "the last window of an epoch is shorter"
    assert "each backward, of which a step usually has 4." in finding.summary


@pytest.mark.parametrize(
    ("line", "example"),
    [
        (
            "norms.append(accelerator.clip_grad_norm_(parameters, 0.25).item())",
            "if accelerator.sync_gradients:\n    norms.append(accelerator.clip_grad_norm_(parameters, 0.25).item())",
        ),
        (
            "norm = nn.utils.clip_grad_norm_(net.parameters(), LIMIT)",
            "norm = nn.utils.clip_grad_norm_(net.parameters(), LIMIT)  # only here\noptimizer.step()",
        ),
        (
            "self.clip_gradients(opt, gradient_clip_val=self.hparams.clip)",
            "self.clip_gradients(opt, gradient_clip_val=self.hparams.clip)  # only here\noptimizer.step()",
        ),
        (
            "clip_all(model)",  # a helper of another file: the limit is the recorded one
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)  # only here\noptimizer.step()",
        ),
    ],
)
def test_a_clip_keeps_what_its_line_does_beside(make, line: str, example: str) -> None:
    site = {"site": 1, "role": "clip", "file": "a.py", "line": 7, "function": "train", "source": line}
    finding = make.check("clip-per-microbatch", make.process(clipping(make), sites=[site]))[2]
    assert finding.fix_code == example
    assert "max_norm" not in finding.summary


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("self.clip_gradients(opt, gradient_clip_val=0.1)", "self.clip_gradients(opt, gradient_clip_val=2)"),
        ("self.clip_gradients(opt, 0.1)", "self.clip_gradients(opt, 2)"),
        ("fabric.clip_gradients(net, opt, max_norm=0.1)", "fabric.clip_gradients(net, opt, max_norm=2)"),
        ("fabric.clip_gradients(net, opt, 0.1)", "fabric.clip_gradients(net, opt, 0.1)"),  # by value
    ],
)
def test_the_limit_of_a_framework_s_clip(make, line: str, changed: str) -> None:
    site = {"site": 1, "role": "clip", "file": "a.py", "line": 7, "function": "train", "source": line}
    process = make.process(clipping(make), sites=[site])
    assert clip_values.own_line(process.optimizations[0], "2") == changed


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({"clips": [1] * COUNT}, "passed"),  # once, before the step
        ({"clips": [8] * COUNT}, "passed"),  # once per parameter tensor
        ({"clips": [0] * COUNT}, "skipped"),  # never
        ({"backwards": [1] * COUNT, "clips": [1] * COUNT}, "skipped"),  # nothing is accumulated
        ({"grads_discarded": [4] * COUNT}, "passed"),  # each backward is clipped alone: private training
        ({"loader_batches": [1] * COUNT}, "skipped"),  # several losses of one batch
        ({"optimizer": [index % 2 for index in range(COUNT)]}, "skipped"),
    ],
)
def test_clip_per_microbatch_is_silent(make, columns, status) -> None:
    assert make.check("clip-per-microbatch", make.process(clipping(make, **columns)))[0] == status


@pytest.mark.parametrize("facts", [{"groups": 4}, {"parameters": 4}])
def test_one_clipping_per_part_is_no_clipping_per_microbatch(make, facts) -> None:
    process = make.process(clipping(make), optimizers=[{"optimizer": 0, "name": "Adam", "parameters": 8} | facts])
    assert make.check("clip-per-microbatch", process)[0] == "skipped"


@pytest.mark.parametrize(
    ("clip", "status"),
    [
        ("accelerator.clip_grad_norm_(model.parameters(), r.max_norm)", "fired"),
        ("norm = nn.utils.clip_grad_norm_(parameters=params, max_norm=1.0)", "fired"),
        ("clip_grad_norm_(net.encoder.parameters(), 1.0)", "skipped"),
        ("nn.utils.clip_grad_norm_(block.parameters(), 1.0)", "skipped"),
        ("nn.utils.clip_grad_norm_(p, 1.0)", "skipped"),
        ('nn.utils.clip_grad_norm_(group["params"], 1.0)', "skipped"),
    ],
)
@pytest.mark.parametrize("facts", [{"groups": 4}, {"parameters": 4}])
def test_a_clip_of_all_that_is_trained_is_none_of_one_part(make, facts, clip: str, status: str) -> None:
    line = {"file": "a.py", "function": "train"}
    sites = [
        line | {"site": 1, "role": "clip", "line": 91, "source": clip},
        line | {"site": 2, "role": "training-call", "line": 85, "source": "loss = criterion(model(x), y)"},
        line | {"site": 3, "role": "optimizer", "line": 70, "source": "optimizer = Adam(params, lr=1e-3)"},
    ]
    optimizer = {"optimizer": 0, "name": "Adam", "made_at": 3, "parameters": 8} | facts
    process = make.process(clipping(make), sites=sites, optimizers=[optimizer])
    assert make.check("clip-per-microbatch", process)[0] == status


def test_as_many_clipping_lines_as_microbatches_may_be_one_per_module(make) -> None:
    sites = [{"site": index, "role": "clip", "file": "train.py", "line": 50 + index} for index in range(4)]
    assert make.check("clip-per-microbatch", make.process(clipping(make), sites=sites))[0] == "skipped"


def test_step_without_backward(make) -> None:
    norms = make.steps()["grad_norm"]
    stale = [norms[index - index % 2] for index in range(COUNT)]
    every_other = make.steps() | {"backwards": [1 - index % 2 for index in range(COUNT)], "grad_norm": stale}
    status, _, finding = make.check("step-without-backward", make.process(every_other))
    assert status == "fired"
    assert (finding.confidence, finding.first_step) == ("likely", 2)
    assert "gradients of the previous step again" in finding.summary
    assert "the optimizer state" in finding.summary, "Adagrad has no momentum"
    cleared = every_other | {"grads_none": [8 * (index % 2) for index in range(COUNT)]}
    assert make.check("step-without-backward", make.process(cleared))[2].confidence == "certain"
    late = make.steps() | {"backwards": [1] * 300 + [i % 2 for i in range(100)], "grads_none": [0] * 300 + [8] * 100}
    assert "From step 301 on, 50% of the steps" in make.check("step-without-backward", make.process(late))[2].summary


def stepping_twice(make, *lines, every: int = 2):
    """What is found of steps, all but one of `every` of which have a backward. `lines`: role, number, text, function;
    what stands beside them is `before()`."""
    columns = {"backwards": [0 if index % every == 1 else 1 for index in range(COUNT)]}
    norms = make.steps()["grad_norm"]
    columns["grad_norm"] = [norms[index - (index % every == 1)] for index in range(COUNT)]
    sites = [
        {
            "site": number, "role": role, "file": "t.py", "line": line, "function": function, "source": source,
            "excerpt": f"    before()\n    {source}", "excerpt_line": line - 1,
        }
        for number, (role, line, source, function) in enumerate(lines)
    ]  # fmt: skip
    optimizers = [{"optimizer": 0, "name": "SGD", "site": 0, "parameters": 8}]
    process = make.process(make.steps() | columns, sites=sites, optimizers=optimizers)
    return make.check("step-without-backward", process)[2]


USUAL = ("step", 20, "self.optimizer.step()", "train_step")
EXTRA = "trainer.optimizer.step()"


def test_the_line_that_steps_once_more_is_the_one_to_take_out(make) -> None:
    more = [(role, 52, EXTRA, "on_batch_end") for role in ("step", "step-again")]
    found = stepping_twice(make, USUAL, *more)
    assert (found.location.line, found.seen_at.line) == (52, 20)
    assert "Line 52 makes these steps, after that of line 20." in found.summary
    assert (found.diff.line, found.diff.removed, found.diff.added) == (52, [f"    {EXTRA}"], [])
    some = stepping_twice(make, USUAL, *more, every=5)  # one of the lines steps at some backwards only
    assert (some.location.line, some.diff) == (52, None)
    assert "Step once per backward" in some.fix


def test_steps_whose_line_may_be_the_usual_one_stay_where_they_are(make) -> None:
    """One line that steps whether or not there was a backward; and several that stepped without one."""
    once = stepping_twice(make, USUAL, ("step-again", *USUAL[1:]))
    assert (once.location.line, once.diff, "Line" in once.summary) == (20, None, False)
    assert "loss.backward()\nself.optimizer.step()" in once.fix_code
    several = [(role, line, EXTRA, "on_batch_end") for role in ("step", "step-again") for line in (52, 60)]
    assert stepping_twice(make, USUAL, *several).location.line == 20
    old = stepping_twice(make, USUAL, ("step", 52, EXTRA, "on_batch_end"))  # recorded without the role
    assert (old.location.line, old.diff) == (20, None)


@pytest.mark.parametrize(
    ("lines", "moved"),
    [
        (["if hard:", "    optimizer.zero_grad()", "    loss.backward()", "optimizer.step()"], True),
        (["if hard:", "    loss.backward()", "else:", "    skipped += 1", "optimizer.step()"], False),
        (["for part in parts:", "    optimizer.zero_grad()", "    loss.backward()", "optimizer.step()"], False),
        (["if hard:", "    for part in parts:", "        loss.backward()", "optimizer.step()"], False),
        (["loss.backward()", "if hard:", "    seen += 1", "optimizer.step()"], False),
    ],
)
def test_a_step_behind_the_condition_of_its_backward_moves_into_the_block(make, lines: list[str], moved: bool) -> None:
    rows = [
        {
            "site": number, "role": role, "file": "t.py", "line": 10 + at, "function": "update",
            "source": lines[at].strip(), "excerpt": "\n".join(f"    {line}" for line in lines), "excerpt_line": 10,
        }
        for number, role in enumerate(("backward", "step", "step-again"))
        for at in [next(i for i, one in enumerate(lines) if ("backward" if not number else ".step()") in one)]
    ]  # fmt: skip
    norms = make.steps()["grad_norm"]
    columns = {"backwards": [1 - index % 2 for index in range(COUNT)]}
    columns["grad_norm"] = [norms[index - index % 2] for index in range(COUNT)]
    optimizers = [{"optimizer": 0, "name": "SGD", "site": 0, "parameters": 8}]
    process = make.process(make.steps() | columns, sites=rows, optimizers=optimizers)
    found = make.check("step-without-backward", process)[2]
    assert ("Line 10 lets some batches run no backward, and line 13 steps" in found.summary) == moved
    assert (found.diff and found.diff.added) == (["        optimizer.step()"] if moved else None)


def test_an_optimizer_of_the_script_s_own_may_not_divide_the_scale_out(make) -> None:
    counts = [8 if index % 5 == 0 else 4 for index in range(COUNT)]
    site = {"site": 0, "role": "backward", "file": "t.py", "line": 4, "function": "f", "source": "loss.backward()"}
    longer = accumulating(make, backwards=counts, loader_batches=counts, loss_divisor=[4] * COUNT)
    longer |= {"grads_discarded": [0] * COUNT, "grads_cleared": [0] * COUNT}
    for name, said in (("AdamW8bit", True), ("MySGD", False), ("SGD", False)):
        process = make.process(longer, optimizers=[{"optimizer": 0, "name": name, "parameters": 8}], sites=[site])
        assert ("evens out" in make.check("irregular-accumulation", process)[2].summary) == said


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({"backwards": [1] * COUNT}, "passed"),
        ({"backwards": [6] * COUNT}, "passed"),  # closure
        ({"backwards": [0] * 5 + [1] * (COUNT - 5)}, "passed"),  # a few steps at the start
        ({"backwards": [0 if index % 100 == 0 else 1 for index in range(COUNT)]}, "passed"),  # one per epoch
        ({"backwards": [0] * COUNT}, "skipped"),  # torch.autograd.grad
        ({"backwards": [None] * COUNT}, "skipped"),
        (
            {"optimizer": [i % 2 for i in range(COUNT)], "backwards": [1 - i % 2 for i in range(COUNT)]},
            "skipped",  # one backward, two optimizers
        ),
    ],
)
def test_step_without_backward_is_silent(make, columns, status) -> None:
    assert make.check("step-without-backward", make.process(make.steps() | columns))[0] == status


def carrying_over(make, **columns):
    """Eleven batches an epoch, a step after every fourth: each second step is made of seven."""
    windows = [4, *([4, 7] * COUNT)][:COUNT]
    first = [True, *([False, True] * COUNT)][:COUNT]
    seen = [None] + [0] * (COUNT - 1)
    usual = {"backwards": windows, "loader_batches": windows, "loader_first": first, "loss_divisor": [4.0] * COUNT}
    return make.steps() | usual | {"grads_discarded": seen, "grads_cleared": seen} | columns


def test_batches_left_over_join_the_next_epoch(make) -> None:
    status, _, finding = make.check("irregular-accumulation", make.process(carrying_over(make)))
    assert (status, finding.severity, finding.first_step, finding.location.line) == ("fired", "warning", 3, 41)
    assert "first of an epoch" in finding.summary
    assert "1.75 times" in finding.summary
    assert "size = min(4" in finding.fix_code
    inside = carrying_over(make, loader_first=[False] * COUNT)
    between = make.check("irregular-accumulation", make.process(inside))[2]
    assert ("are skipped" in between.summary, "Count backwards" in between.fix) == (True, True)
    adam = [{"optimizer": 0, "name": "Adam", "device": "cpu"}]
    assert (
        make.check("irregular-accumulation", make.process(carrying_over(make), optimizers=adam))[2].severity == "info"
    )


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({"backwards": [4] * COUNT, "loader_batches": [4] * COUNT}, "passed"),
        (
            {"loader_first": [True, False, False] * 133 + [True]}  # short at the end of each epoch
            | dict.fromkeys(("backwards", "loader_batches"), [4, 4, 2] * 133 + [4]),
            "passed",
        ),
        ({"loss_divisor": [4.0, *([4.0, 7.0] * COUNT)][:COUNT]}, "passed"),  # follows the window
        ({"loss_divisor": [1.0] * COUNT}, "passed"),  # an episode, a sentence at a time
        ({"loss_divisor": [64.0] * COUNT}, "passed"),  # a sum over a batch, divided by its size
        ({"grads_discarded": [None] + [0, 6] * 199 + [0]}, "passed"),  # zero_grad as an epoch begins
        ({"backwards": [4] * 99 + [7] + [4] * 299 + [7]}, "passed"),  # long epochs
        ({"skipped": [index % 2 == 0 for index in range(COUNT)]}, "passed"),
        ({"loader_batches": [1] * COUNT}, "skipped"),  # several losses of one batch
        ({"grads_discarded": [None, 0] + [None] * (COUNT - 2)}, "skipped"),  # not watched in a longer one
        ({"grads_discarded": [None, 0, 6] + [None] * (COUNT - 3)}, "passed"),  # cleared in the one that was watched
        ({"optimizer": [0, 1] * (COUNT // 2)}, "skipped"),
        ({"loss_divisor": [None] * COUNT}, "skipped"),
    ],
)
def test_windows_that_differ_rightly_or_cannot_be_told(make, columns, status) -> None:
    assert make.check("irregular-accumulation", make.process(carrying_over(make, **columns)))[0] == status


@pytest.mark.parametrize(("watched", "confidence"), [(3, "likely"), (5, "certain")])
def test_one_longer_window_that_was_watched_makes_it_likely(make, watched, confidence) -> None:
    columns = carrying_over(make, grads_discarded=[None] + [0] * (watched - 1) + [None] * (COUNT - watched))
    status, reason, finding = make.check("irregular-accumulation", make.process(columns))
    assert status == "fired", reason
    assert finding.confidence == confidence


def loop(make, text: list[str], function: str = "main"):
    """A recording in which nobody watched the longer windows, of a loop with these lines from line 41 on."""
    excerpt = {"file": "train.py", "function": "main", "excerpt": "\n".join(text), "excerpt_line": 41}
    sites = [{"site": 0, "role": "optimizer", "file": "train.py", "line": 9, "function": function, "source": ""}]
    for number, line in enumerate(text, 41):
        for role, sign in (("backward", ".backward("), ("step", "opt.step("), ("zero_grad", ".zero_grad(")):
            if sign in line:
                sites.append(excerpt | {"site": len(sites), "role": role, "line": number, "source": line.strip()})
    columns = carrying_over(make, grads_discarded=[None, 0] + [None] * (COUNT - 2))
    return make.check("irregular-accumulation", make.process(columns, sites=sites))


@pytest.mark.parametrize(
    ("condition", "line"),
    [
        ("if (i + 1) % 4 == 0:", 42),
        ("if not i % self.every or last:", 42),
        ("if ready:", 41),
        ('if "%d" in name:', 41),
    ],
)
def test_the_condition_that_counts_batches_is_the_line_to_change(make, condition: str, line: int) -> None:
    text = ["    (loss / 4).backward()", f"    {condition}", "        opt.step()", "        opt.zero_grad()"]
    finding = loop(make, text)[2]
    assert finding.location.line == line
    assert "times that of a full step" in finding.summary


def test_the_only_zero_grad_stands_behind_the_step(make) -> None:
    begin = ["    (loss / 4).backward()", "    if (i + 1) % 4 == 0:"]
    step, clear = "        opt.step()", "        opt.zero_grad()"
    status, _, finding = loop(make, [*begin, step, clear])
    assert (status, finding.confidence) == ("fired", "likely")
    assert loop(make, [*begin, step, "        schedule.step()", clear])[0] == "fired"
    assert loop(make, [*begin, step, "    opt.zero_grad()"])[0] == "skipped", "cleared at every batch"
    assert loop(make, [*begin, step, clear, "opt.zero_grad()"])[0] == "skipped", "and as the epoch ends"
    assert loop(make, ["opt.zero_grad()", *begin, step])[0] == "skipped", "as the epoch begins"
    assert loop(make, [*begin, step, clear], function="train")[0] == "skipped", "called for each epoch"


def test_another_zero_grad_stands_above_the_loop_over_batches(make) -> None:
    begin = ["    for i, (x, y) in enumerate(loader):", "        (loss / 4).backward()", "        if (i + 1) % 4 == 0:"]
    step, clear = "            opt.step()", "            opt.zero_grad()"
    # What is longer begins with an epoch, in these columns: what was left over may have been cleared there.
    assert loop(make, ["    opt.zero_grad()", *begin, step, clear], function="train")[0] == "skipped"
    assert loop(make, ["        opt.zero_grad()", *begin, step, clear])[0] == "skipped", "not above the loop"


def test_longer_windows_within_an_epoch_where_the_epoch_begins_with_zero_grad(make) -> None:
    text = ["    opt.zero_grad()", "    for x, y in loader:", "        (loss / 4).backward()", "        if ready:",
            "            opt.step()", "            opt.zero_grad()"]  # fmt: skip
    excerpt = {"file": "train.py", "function": "epoch", "excerpt": "\n".join(text), "excerpt_line": 41}
    sites = [
        excerpt | {"site": number, "role": role, "line": 41 + at, "source": text[at].strip()}
        for number, (role, at) in enumerate([("backward", 2), ("step", 4), ("zero_grad", 0), ("zero_grad", 5)])
    ]
    columns = carrying_over(make, grads_discarded=[None, 0] + [None] * (COUNT - 2))
    columns["loader_first"] = [False] * COUNT
    status, reason, finding = make.check("irregular-accumulation", make.process(columns, sites=sites))
    assert status == "fired", reason
    assert finding.confidence == "likely"


def test_frameworks_divide_by_themselves(make) -> None:
    sites = [{"site": 1, "role": "backward", "file": "train.py", "line": 9, "source": "trainer.train()"}]
    process = make.process(carrying_over(make), sites=sites)
    assert "framework" in make.check("irregular-accumulation", process)[1]


def cut_short(make, windows, **columns):
    """Losses are divided by six; an epoch has `windows`."""
    times = COUNT // len(windows)
    backwards = list(windows) * times
    first = ([True] + [False] * (len(windows) - 1)) * times
    every = {"backwards": backwards, "loader_batches": backwards, "microbatches": backwards, "loader_first": first}
    count = len(backwards)
    seen = {"grads_discarded": [0] * count, "grads_cleared": [0] * count}
    return make.steps(count) | every | seen | {"loss_divisor": [6.0] * count} | columns


def test_windows_that_a_second_condition_cuts_short(make) -> None:
    status, _, finding = make.check("irregular-accumulation", make.process(cut_short(make, [6, 4, 2, 6, 2, 4, 6, 6])))
    assert (status, finding.severity, finding.first_step) == ("fired", "warning", 2)
    assert finding.title == "50% of the steps sum 2 to 4 micro-batches but divide by 6"
    assert "Skipped batches are still counted" in finding.summary
    assert "if count == 6:" in finding.fix_code
    assert "    count = 0" in finding.fix_code
    adam = [{"optimizer": 0, "name": "Adam", "device": "cpu"}]
    few = make.process(cut_short(make, [6, 4, 6, 6, 6, 4, 2, 6]), optimizers=adam)
    assert make.check("irregular-accumulation", few)[2].severity == "info"
    most = make.process(cut_short(make, [6, 4, 2, 1, 2, 4, 3, 6]), optimizers=adam)
    assert make.check("irregular-accumulation", most)[2].severity == "warning"


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("if (i + 1) % args.window == 0 or i + 1 == len(train):", "if count == args.window:"),
        ("if (i + 1) % 8 == 0:", "if count == 6:"),  # losses are divided by six
        ("if ready(i):", "if count == 6:"),
    ],
)
def test_the_condition_that_counts_backwards(make, condition: str, shown: str) -> None:
    """What is counted begins anew where gradients are cleared; what stands below the condition is not repeated."""
    text = ["    (loss / args.window).backward()", f"    {condition}", "        clip(model)", "        opt.step()"]
    excerpt = {"file": "train.py", "function": "epoch", "excerpt": "\n".join(text), "excerpt_line": 41}
    sites = [
        excerpt | {"site": number, "role": role, "line": 41 + at, "source": text[at].strip()}
        for number, (role, at) in enumerate([("backward", 0), ("step", 3)])
    ]
    process = make.process(cut_short(make, [6, 4, 2, 6, 2, 4, 6, 6]), sites=sites)
    code = make.check("irregular-accumulation", process)[2].fix_code
    assert shown in code
    assert "count = 0  # before the first backward, and wherever gradients are cleared" in code
    assert ("# in place of line 42\n    ...  # what stands below it" in code) == ("%" in condition)
    assert ("opt.zero_grad()\n    count = 0" in code) == ("%" not in condition)


def test_the_last_window_of_an_epoch_may_be_short(make) -> None:
    assert make.check("irregular-accumulation", make.process(cut_short(make, [6, 6, 6, 2])))[0] == "passed"
    without = dict.fromkeys(("loader_first", "loader_batches"), [None] * COUNT)
    assert make.check("irregular-accumulation", make.process(cut_short(make, [6, 6, 6, 2], **without)))[0] == "passed"
    several = make.process(cut_short(make, [6, 4, 2, 6], loader_batches=[1] * COUNT, microbatches=[1] * COUNT))
    assert make.check("irregular-accumulation", several)[0] == "skipped", "several losses of one batch"


def delayed(make, kept: int, **columns: Any) -> dict[str, Any]:
    """Two optimizers in turn; of the second every fourth step has a backward, and as many norms stay as `kept` says."""
    norms = make.steps(800)["grad_norm"]
    second = [index // 2 for index in range(800)]
    return (
        make.steps(800)
        | {
            "optimizer": [index % 2 for index in range(800)],
            "step": [number + 1 for number in second],
            "backwards": [1 if index % 2 == 0 or index // 2 % 4 == 0 else 0 for index in range(800)],
            "grad_norm": [norms[second[index] // kept * kept if index % 2 else index] for index in range(800)],
        }
        | columns
    )


def test_step_without_backward_beside_another_optimizer(make) -> None:
    """A step that stands outside of the branch with its backward: the gradients are those of the last time."""
    status, _, finding = make.check("step-without-backward", make.process(delayed(make, 4)))
    assert (status, finding.confidence) == ("fired", "likely")
    assert "300 optimizer steps" in finding.title


@pytest.mark.parametrize(
    ("kept", "columns", "status"),
    [
        (1, {}, "passed"),  # new gradients, whose backward another optimizer's step has counted
        (8, {}, "passed"),  # norms that stay although there was a backward: they do not tell
        (4, {"clip_max_norm": [1.0] * 800}, "skipped"),
        (4, {"grad_norm": [None] * 800}, "skipped"),
    ],
)
def test_steps_beside_another_optimizer_that_are_healthy(make, kept: int, columns, status: str) -> None:
    assert make.check("step-without-backward", make.process(delayed(make, kept, **columns)))[0] == status


def test_the_example_of_a_loop_whose_step_takes_a_closure(make) -> None:
    """The optimizer calls it: what is cleared after the step is too late for the second call."""
    carried = make.steps() | {"grads_carried": [0] + [8] * (COUNT - 1)}

    def fix_of(step: str, function: str):
        rows = [
            {
                "site": 0,
                "role": "backward",
                "file": "t.py",
                "line": 5,
                "function": function,
                "source": "loss.backward()",
            },
            {"site": 1, "role": "step", "file": "t.py", "line": 9, "function": "main", "source": step},
        ]
        optimizers = [{"optimizer": 0, "name": "LBFGS", "site": 1, "backward_site": 0, "parameters": 8}]
        process = make.process(carried, sites=rows, optimizers=optimizers)
        return make.check("missing-zero-grad", process)[2]

    inside = fix_of("loss = optimizer.step(closure)", "closure")
    assert inside.fix_code.startswith("def closure():\n    optimizer.zero_grad()\n")
    assert "closure" in inside.fix
    assert inside.diff is None
    assert fix_of("optimizer.step()", "main").fix_code.startswith("loss.backward()")


@pytest.mark.parametrize(("source", "named"), [("loss.backward()", False), ("accelerator.backward(loss)", True)])
def test_only_a_loop_that_may_be_of_accelerate_is_told_of_it(make, source: str, named: bool) -> None:
    line = {"site": 4, "role": "backward", "file": "t.py", "line": 8, "function": "main", "source": source}
    finding = make.check("discarded-microbatches", make.process(discarding(make), sites=[line]))[2]
    assert ("Accelerate" in finding.fix) is named
