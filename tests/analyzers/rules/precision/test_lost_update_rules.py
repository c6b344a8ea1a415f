"""Rules about steps that change nothing, or that rounding swallows, and the healthy look-alikes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers.rules.evaluation.ema_not_updated import copies
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.candidates import loaded_short
from tracelyze.analyzers.script.editing.remade.precision import casts
from tracelyze.diagnosis import Exit, Location


def look(step: int, since: int | None, parameter: str = "layer.weight", **more: Any) -> dict[str, Any]:
    """One look at one tensor; by default a step changed all of it."""
    row = {"time": 0.05 * step, "step": step, "optimizer": 0, "parameter": parameter, "dtype": "float32"}
    row |= {"elements": 4096, "lr": 0.01, "weight_norm": 10.0, "update_norm": 0.01, "unchanged": 0.0}
    row |= {"unchanged_reached": 0.0, "since": since, "unchanged_since": None if since is None else 0.0}
    return row | {"grad_norm": 1.0, "grad_finite": True, "closure": False} | more


STILL = {"unchanged": 1.0, "unchanged_reached": 1.0}


STEPS = [1, 2, 11, 16, 24, 36, 54, 81, 121, 181, 271]


def looks(since: float | None = None, **more: Any) -> list[dict[str, Any]]:
    """Looks at a tensor over a run; `since` is the share that is as it was at the look before."""
    rows = []
    for before, step in zip([None, *STEPS], STEPS, strict=False):
        known = {} if before is None or since is None else {"unchanged_since": since}
        rows.append(look(step, None if before is None else step - before, **known, **more))
    return rows


def test_an_optimizer_that_never_steps(make) -> None:
    idle = [{"time": 1.0, "step": 0, "kind": "unstepped-optimizer", "name": "Adam", "value": 30.0}]
    nothing = {name: values[:0] for name, values in make.steps().items()}

    def judged(end: Exit, events: Any = idle, **more: Any) -> Any:
        facts = {"backwards": 188}
        return make.check("updates-not-applied", make.process(nothing, events=events, end=end, facts=facts, **more))

    finished = Exit("finished", 0, "")
    _, _, finding = judged(finished)
    assert (finding.title, finding.confidence) == ("188 backward passes ran, and Adam never took a step", "certain")
    assert "rate times gradient" not in str(finding.excluded), "no step, and so no sample of one"
    assert "Call optimizer.step()" in finding.fix
    scaled = {"site": 1, "role": "backward", "file": "t.py", "line": 70, "source": "scaler.scale(loss).backward()"}
    assert "Call scaler.step(optimizer), then scaler.update()," in judged(finished, sites=[scaled])[2].fix
    step = {"site": 1, "role": "step-text", "file": "t.py", "line": 77, "function": "train"}
    texts = [step | {"source": "optimizer.step()"}, step | {"site": 2, "line": 75, "source": "scheduler.step()"}]
    _, _, finding = judged(finished, sites=texts)
    assert (finding.location.line, finding.fix_code) == (77, ""), "another call would be a second one"
    assert "Line 77 calls the step, and never ran" in finding.fix
    assert "Call optimizer.step()" in judged(finished, sites=texts[1:])[2].fix
    assert judged(Exit("exception", 1, "KeyError"))[0] == "skipped", "the step may have been about to come"
    assert judged(finished, [])[0] == "skipped", "gradients that are only measured need no optimizer"


def test_a_parameter_that_no_step_changes(make) -> None:
    rows = looks() + looks(1.0, parameter="norm.bias", **STILL)
    status, _, finding = make.check("updates-not-applied", make.process(more={"parameters": rows}))
    assert status == "fired"
    assert finding.title == "Optimizer steps never change 1 of 2 sampled parameters"
    assert "norm.bias" in finding.summary
    assert finding.cost is None, "the other one learns"
    whole = make.check("updates-not-applied", make.process(more={"parameters": looks(1.0, **STILL)}))[2]
    assert whole.cost.share == 1.0
    steps = make.steps(200)
    steps = {name: np.repeat(np.asarray(values), 2) for name, values in steps.items()} | {"optimizer": [0, 1] * 200}
    optimizers = [{"optimizer": 0, "name": "Muon"}, {"optimizer": 1, "name": "AdamW"}]
    more = {"parameters": looks(1.0, **STILL), "optimizers": optimizers}
    beside = make.check("updates-not-applied", make.process(steps, more=more))[2]
    assert beside.cost is None, "what another optimizer steps beside it learns"


def test_a_parameter_that_no_step_with_a_closure_changes(make) -> None:
    """Lightning hands each step a closure. What rejects what that computes changes no other tensor, either."""
    still = looks(1.0, parameter="encoder.weight", **STILL, closure=True, grad_zeros=0.0)
    moved = looks(parameter="encoder.bias", closure=True, grad_zeros=0.0)
    status, _, finding = make.check("updates-not-applied", make.process(more={"parameters": still + moved}))
    assert (status, finding.title) == ("fired", "Optimizer steps never change 1 of 2 sampled parameters")
    assert "It has a gradient" in finding.summary
    rejected = [row | {"unchanged": 1.0, "unchanged_reached": 1.0} for row in moved[1:]]
    searched = make.process(more={"parameters": still + moved[:1] + rejected})
    assert make.check("updates-not-applied", searched)[0] == "skipped", "a line search that finds nothing better"


def test_weights_of_zero_that_an_update_in_proportion_to_them_never_moves(make) -> None:
    rows = looks() + looks(1.0, parameter="head.weight", **STILL, weight_norm=0.0)
    finding = make.check("updates-not-applied", make.process(more={"parameters": rows}))[2]
    assert "trust ratio" in finding.fix
    assert "They are all zero" in finding.summary
    assert all(one.value != float("inf") for one in finding.evidence)
    other = make.check("updates-not-applied", make.process(more={"parameters": looks(1.0, **STILL)}))[2]
    assert "trust" not in other.fix + other.summary


@pytest.mark.parametrize(
    ("name", "dimensions", "line", "told"),
    [
        ("Ortho", (1, 2), "if p.grad is None or p.ndim != 2:", True),
        ("Ortho", (1, 1), "if p.grad is None or p.ndim != 2:", False),  # others of that kind do change
        ("Ortho", (1, 2), "", False),  # something else in the step may tell them apart
        ("AdamW", (1, 2), "", False),
        ("Ortho", (None, None), "if p.grad is None or p.ndim != 2:", False),  # a recording without them
    ],
)
def test_a_step_that_passes_over_tensors_by_their_dimensions(
    make, name: str, dimensions, line: str, told: bool
) -> None:
    """`if p.ndim != 2: continue`, of an optimizer that is given all parameters."""
    rows = looks(1.0, parameter="norm.bias", **STILL, dimensions=dimensions[0]) + looks(dimensions=dimensions[1])
    texts = [("optimizer-step", 10, "def step(self):"), ("by-dimensions", 17, line)]
    texts.append(("optimizer", 90, f"opt = {name}(model.parameters(), lr=0.01)"))
    sites = [
        {"site": at, "role": role, "file": "a.py", "line": at, "function": "step", "source": text}
        for role, at, text in texts
        if text
    ]
    own = {"optimizer": 0, "name": name, "step_defined_at": 10 if name == "Ortho" else None, "made_at": 90}
    finding = make.check("updates-not-applied", make.process(more={"parameters": rows}, sites=sites, optimizers=[own]))[
        2
    ]
    assert ("All of these have 1 dimension, and all that change have 2 dimensions." in finding.summary) is told
    assert ("Line 17 is the only place" in finding.summary) is told
    assert ("opt = Ortho(own, lr=0.01)" in finding.fix_code) is told
    if told:
        assert finding.location.line == 17


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("p.data.reshape(-1),", True),
        ("return p.reshape(-1), p.grad.reshape(-1)", True),
        ("return p.reshape(-1).norm(), p.grad.reshape(-1).norm()", False),  # only measured
    ],
)
def test_a_helper_of_the_step_that_hands_out_a_copy(make, line: str, told: bool) -> None:
    sites = [
        {"site": at, "role": role, "file": "a.py", "line": at, "function": function, "source": text}
        for at, role, function, text in (
            (30, "optimizer-step", "step", "def step(self, closure=None):"),
            (56, "handed-out", "flat_views", line),
        )
    ]
    own = [{"optimizer": 0, "name": "Own", "step_defined_at": 30}]
    process = make.process(more={"parameters": looks(1.0, **STILL)}, sites=sites, optimizers=own)
    finding = make.check("updates-not-applied", process)[2]
    assert finding.location.line == (56 if told else 30)
    assert ("by reshape(): where that is a copy, the parameter stays as it was." in finding.summary) is told
    assert (".copy_(flat.reshape(" in finding.fix_code) is told


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ('p = p - group["lr"] * p.grad', 'p.copy_(p - group["lr"] * p.grad)'),
        (
            "p.reshape(len(p), -1).add_(u, alpha=-lr)",
            "p.copy_(p.reshape(len(p), -1).add_(u, alpha=-lr).reshape(p.shape))",
        ),
        ("p.data.float().sub_(u)", "p.data.copy_(p.data.float().sub_(u))"),
        ("flat = p.reshape(len(p), -1)", "p.copy_(flat.reshape(p.shape))  # after the last line that changes flat"),
        ("p = p.float()", ""),  # which step follows, and with which sign, is the script's own
        ("p.sub(lr * p.grad)", "p.sub_(lr * p.grad)"),
        ("p.data.add(u, alpha=-lr)", "p.data.add_(u, alpha=-lr)"),
        ("p = p.add(u, alpha=lr)", "p.copy_(p.add(u, alpha=lr))"),
        ("wide = p.data.float().detach()", "p.data.copy_(wide)  # after the last line that changes wide"),
    ],
)
def test_a_line_that_makes_a_new_tensor_is_written_in_place(make, line: str, example: str) -> None:
    sites = [
        {"site": number, "role": role, "file": "a.py", "line": 10 * number, "function": "step", "source": text}
        for number, (role, text) in enumerate([("optimizer-step", "def step(self):"), ("rebound", line)], 1)
    ]
    optimizers = [{"optimizer": 0, "name": "Own", "step_defined_at": 1}]
    process = make.process(more={"parameters": looks(1.0, **STILL)}, sites=sites, optimizers=optimizers)
    finding = make.check("updates-not-applied", process)[2]
    assert finding.fix_code == (example and f"with torch.no_grad():\n    {example}")
    copied = (
        not any(one in example for one in (".copy_(p -", "p.sub_(", "add_(u, alpha=-lr)", "p.add("))
        or "reshape" in line
    )
    assert ("where that is a copy" in finding.summary) is copied
    assert finding.location.line == 20


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("slow = slow.mul(d).add_(new[name], alpha=1 - d)", "slow.copy_(slow.mul(d).add_(new[name], alpha=1 - d))"),
        ("slow = d * slow + (1 - d) * new", "slow.copy_(d * slow + (1 - d) * new)"),
        ("slow = slow.lerp_(new, 1 - d)", None),
        ("ema = update_parameters(model)", None),
    ],
)
def test_an_average_that_is_made_anew_is_written_in_place(make: Any, line: str, example: str | None) -> None:
    fix, code = copies.remedy(make.process(), Location("a.py", 3, "track", line), updated=False)
    assert (code == f"{example}  # under torch.no_grad()") is (example is not None)
    assert ("Line 3 gives" in fix) is (example is not None)


MIXES = "            slow = d * slow + (1 - d) * new"


@pytest.mark.parametrize(
    ("head", "line", "edited"),
    [
        ("    @torch.no_grad()\n    def track(self, model):\n        for slow, new in pairs:", MIXES, True),
        ("    def track(self, model):\n        with torch.no_grad():\n          for slow, new in pairs:", MIXES, True),
        ("    def track(self, model):\n        for slow, new in pairs:", MIXES, False),  # of tensors that are trained
        ("    @torch.no_grad()\n    def other(self):\n    def track(self):", MIXES, False),
        (
            "    @torch.no_grad()\n    def track(self, model):\n        for slow, new in pairs:",
            "ema = update(m)",
            False,
        ),
    ],
)
def test_an_average_is_edited_where_no_graph_is_recorded(make, head: str, line: str, edited: bool) -> None:
    text = f"{head}\n{line}"
    place = 1 + text.count("\n")
    site = {"site": 40, "role": "average", "file": "a.py", "line": place, "function": "track", "source": line.strip()}
    process = make.process(sites=[site | {"excerpt": text, "excerpt_line": 1}])
    diff = copies.written_into(process, process.site(40))
    assert (diff.added if diff else None) == (["            slow.copy_(d * slow + (1 - d) * new)"] if edited else None)


@pytest.mark.parametrize(
    ("weight", "bias", "fired"), [(10.0, 1.0, True), (0.0, 1.0, False), (10.0, 0.0, False), ([0.0, 0.5], 1.0, True)]
)
def test_layers_before_a_zero_that_stays(make, weight: Any, bias: float, fired: bool) -> None:
    """Through a last layer or a gate of zero nothing flows back; no activation between the layers is to blame."""
    cut = {"grad_largest": 0.0, "grad_norm": 0.0}
    rows = looks(parameter="body.weight", **cut)
    sizes = weight if isinstance(weight, list) else [weight]
    for number, row in enumerate(looks(parameter="head.weight", grad_largest=0.1)):
        rows.append(row | {"weight_norm": sizes[min(number, len(sizes) - 1)]})
    rows += looks(parameter="head.bias", grad_largest=0.1, weight_norm=bias)
    called = [
        {"time": 0.1, "step": 1, "order": order, "module": name, "kind": "Linear", "inputs": 8, "outputs": 8}
        for order, name in enumerate(("body", "head"))
    ]
    reach = [{"time": 1.0, "optimizer": 0, "step": 400, "steps": 400, "held": 3, "held_elements": 12288, "missed": 0}]
    reach[0] |= {"missed_elements": 0}
    process = make.process(more={"parameters": rows, "activations": called, "reach": reach})
    assert (make.check("frozen-parameters", process)[0] == "fired") == fired


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        (looks(), "passed"),
        (looks(1.0, **STILL, lr=0.0), "skipped"),  # a rate of zero
        (looks(1.0, **STILL, grad_norm=1e-9), "skipped"),  # the gradient is rounding noise
        (looks(1.0, **STILL, dtype="bfloat16"), "skipped"),  # see lost-updates
        (looks(1.0, **STILL, closure=True), "skipped"),  # a line search
        (looks(0.5, **STILL), "passed"),  # an optimizer that writes every few steps
        (looks(1.0, unchanged=1.0, unchanged_reached=None), "passed"),  # rows of a table that the data do not name
        (looks(1.0, **STILL)[:3], "skipped"),  # a run of a few steps
        (looks() + looks(1.0, parameter="head.weight", **STILL, lr=1e-6), "passed"),  # a group that warms up
    ],
)
def test_parameters_that_may_stay_as_they_are(rows: list[dict[str, Any]], status: str, make) -> None:
    assert make.check("updates-not-applied", make.process(more={"parameters": rows}))[0] == status


def sixteen(lost: float, held: list[float]) -> list[dict[str, Any]]:
    rows = looks(0.0, dtype="bfloat16", unchanged=lost, unchanged_reached=lost)[: len(held) + 1]
    for row, share in zip(rows[1:], held, strict=True):
        row["unchanged_since"] = share
    return rows


def gaps() -> list[int]:
    return [after - before for before, after in pairwise(STEPS)]


def test_updates_that_vanish_and_never_add_up(make) -> None:
    rows = sixteen(0.95, [0.94] * len(gaps()))
    status, _, finding = make.check("lost-updates", make.process(more={"parameters": rows}))
    assert (status, finding.severity) == ("fired", "warning")
    assert finding.title.startswith("95% of the weight updates")
    slow = make.process(more={"parameters": sixteen(0.985, [0.978] * len(gaps()))})  # each stretch alone tells little
    assert make.check("lost-updates", slow)[0] == "fired"
    short = sixteen(0.968, [0.932, 0.942, 0.959, 0.959, 0.956, 0.958, 0.955, 0.954, 0.952])  # of a run of 200 steps
    assert make.check("lost-updates", make.process(more={"parameters": short}))[0] == "fired"
    frozen = make.process(more={"parameters": sixteen(1.0, [1.0] * len(gaps()))})
    assert make.check("lost-updates", frozen)[0] == "fired"


@pytest.mark.parametrize(
    ("name", "lost", "held", "status"),
    [
        ("AdamW", 0.76, [0.78] * 6, "fired"),
        ("AdamW", 0.9, [0.7, 0.78, 0.72, 0.65, 0.58, 0.48], "skipped"),  # a walk: the longer, the more have moved
        ("StochasticAdamW", 0.76, [0.78] * 6, "skipped"),  # may round at random, or keep copies
    ],
)
def test_updates_of_a_short_run_that_vanish(make, name: str, lost: float, held: list[float], status: str) -> None:
    """Of an optimizer of torch, which writes into the weights themselves: stretches of eight steps will do."""
    rows = sixteen(lost, held)
    for row, since, step in zip(rows, [0, 9, 5, 8, 12, 18, 27], [2, 11, 16, 24, 36, 54, 81], strict=True):
        row |= {"step": step, **({"since": since} if since else {})}
    process = make.process(more={"parameters": rows})
    process.longest.facts["name"] = name
    status_found, _, finding = make.check("lost-updates", process)
    assert status_found == status
    assert finding is None or finding.confidence == "likely"


@pytest.mark.parametrize(
    ("name", "zeros", "status"),
    [
        ("AdamW", 0.0, "fired"),  # of Lightning, say
        ("AdamW", 0.5, "skipped"),  # the step itself may have had other elements with a gradient
        ("LBFGS", 0.0, "skipped"),  # its line search may reject a step
    ],
)
def test_updates_that_vanish_in_steps_with_a_closure(make, name: str, zeros: float, status: str) -> None:
    rows = [row | {"closure": True, "grad_zeros": zeros} for row in sixteen(0.95, [0.94] * len(gaps()))]
    process = make.process(more={"parameters": rows})
    process.longest.facts["name"] = name
    assert make.check("lost-updates", process)[0] == status


def test_a_step_has_the_time_of_its_own_training(make) -> None:
    first, second = make.steps(50), make.steps(400)
    steps = {name: [*first[name], *second[name]] for name in first}
    steps |= {"optimizer": [0] * 50 + [1] * 400, "time": [0.1 * (index + 1) for index in range(450)]}
    rows = [row | {"optimizer": 1} for row in sixteen(0.95, [0.94] * len(gaps()))]
    optimizers = [{"optimizer": index, "name": "AdamW"} for index in (0, 1)]
    calls = [{"site": at, "role": "training-call", "file": "t.py", "line": at, "source": "model(x)"} for at in (71, 95)]
    process = make.process(steps=steps, sites=calls, more={"parameters": rows, "optimizers": optimizers})
    finding = make.check("lost-updates", process)[2]
    assert "every call of this model" in finding.fix, "one of these lines may call another one, of float32"
    begin = finding.first_step
    assert round(finding.first_second, 1) == round(5 + 0.1 * begin, 1), "the first training took five seconds"


@pytest.mark.parametrize(("asked", "mixed"), [("bf16-true", "bf16-mixed"), ("16-true", "16-mixed")])
def test_a_framework_that_is_told_to_keep_weights_in_16_bits(make, asked: str, mixed: str) -> None:
    line = {"site": 40, "role": "setting", "file": "fit.py", "line": 108, "function": "main"}
    rows = sixteen(0.95, [0.94] * len(gaps()))
    process = make.process(sites=[line | {"source": f'precision="{asked}",'}], more={"parameters": rows})
    finding = make.check("lost-updates", process)[2]
    assert (finding.location.line, finding.fix_code) == (108, f'precision="{mixed}"  # line 108')
    process = make.process(sites=[line | {"source": f'precision="{mixed}",'}], more={"parameters": rows})
    assert make.check("lost-updates", process)[2].fix_code.startswith("model = model.float()")


@pytest.mark.parametrize("changed", [0.3, 0.1, 0.05, 0.02, 0.01, 1e-3, 1e-4])
def test_small_updates_that_add_up_in_wider_copies(changed: float, make) -> None:
    rows = sixteen(1 - changed, [(1 - changed) ** gap for gap in gaps()])
    assert make.check("lost-updates", make.process(more={"parameters": rows}))[0] == "passed"


@pytest.mark.parametrize("changed", [0.1, 0.03, 0.01])
def test_small_updates_in_random_directions_that_add_up(changed: float, make) -> None:
    held = [1 - min(changed * gap**0.5, 0.6) for gap in gaps()]
    assert make.check("lost-updates", make.process(more={"parameters": sixteen(1 - changed, held)}))[0] == "passed"
    few = make.process(more={"parameters": sixteen(1 - changed, held[:6])})  # stretches of nine steps tell nothing yet
    assert make.check("lost-updates", few)[0] == "skipped"


@pytest.mark.parametrize(
    ("how", "zeros", "other", "status"),
    [
        ("round", 0.0, 1, "fired"),
        ("copies", 0.0, 1, "passed"),
        ("own", 0.0, 1, "passed"),  # an optimizer that may keep copies of more bits
        ("round", 0.2, 1, "passed"),  # rows of a table, of which many have no gradient
        ("round", 0.0, 9, "passed"),  # a small part of the weights
    ],
)
def test_a_half_of_the_weights_that_never_moves(how: str, zeros: float, other: int, status: str, make) -> None:
    """Weights of many sizes: updates move the small ones, and are less than half a step of the large ones."""
    random = np.random.default_rng(0)
    weights = (0.02 * random.standard_normal(4000)).astype(np.float32)

    def short(values: Any) -> Any:
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)

    weights, drift = short(weights), random.standard_normal(4000)
    rows = sixteen(0.0, [0.0] * len(gaps()))
    last, at = weights, {row["step"]: row for row in rows}
    for step in range(1, max(STEPS) + 1):
        before = short(weights)
        drift = 0.97 * drift + 0.243 * random.standard_normal(4000)
        weights = weights + 4e-5 * drift
        weights = weights if how == "copies" else short(weights)
        if step in at:
            at[step]["unchanged"] = at[step]["unchanged_reached"] = float((short(weights) == before).mean())
            if at[step]["since"] is not None:
                at[step]["unchanged_since"] = float((before == last).mean())
            at[step]["grad_zeros"], last = zeros, before
    rest = [row | {"parameter": "moves", "unchanged_reached": 0.5, "unchanged_since": 0.1} for row in rows]
    rest = [row | {"elements": rows[0]["elements"] * other} for row in rest] if other > 1 else []
    process = make.process(more={"parameters": rows + rest})
    process.longest.facts["name"] = "KahanAdamW" if how == "own" else "AdamW"
    answer = make.check("lost-updates", process)
    assert answer[0] == status
    assert not answer[2] or answer[2].confidence == "likely"


def test_weights_that_need_no_wider_copies(make) -> None:
    assert make.check("lost-updates", make.process(more={"parameters": looks()}))[0] == "skipped", "32 bits"
    rows = sixteen(0.3, [0.02] * len(gaps()))
    assert make.check("lost-updates", make.process(more={"parameters": rows}))[0] == "passed"
    assert make.check("lost-updates", make.process(more={"parameters": rows[:2]}))[0] == "skipped"
    assert make.check("lost-updates", make.process())[0] == "skipped"


@pytest.mark.parametrize(
    ("sites", "line"),
    [
        ([("cast", 4, "model.bfloat16()"), ("sixteen", 9, "x = x.bfloat16()")], 4),
        ([("sixteen", 6, "p.data = p.data.to(torch.bfloat16)"), ("sixteen", 9, "x = x.bfloat16()")], 6),
        ([("sixteen", 3, "torch.set_default_dtype(torch.bfloat16)")], 3),
        ([("sixteen", 5, "head = nn.Linear(8, 2, dtype=torch.half)")], 5),
        ([("sixteen", 5, 'with torch.autocast("cpu", dtype=torch.bfloat16):')], None),
        ([("sixteen", 9, "x = x.bfloat16()")], None),
        ([("sixteen", 3, "torch.set_default_dtype(torch.half)"), ("sixteen", 60, "p.data = p.data.half()")], None),
    ],
)
def test_the_line_that_makes_weights_short(make, sites: list[tuple[str, int, str]], line: int | None) -> None:
    rows = [
        {"site": 20 + number, "role": role, "file": "train.py", "line": at, "function": "main", "source": source}
        for number, (role, at, source) in enumerate(sites)
    ]
    found = script_lines.made_short(make.process(sites=rows))
    assert (found.line if found else None) == line


@pytest.mark.parametrize(
    ("made", "cast", "line"),
    [
        ("model = AutoModel.from_pretrained(path)", "Bert(config).to(torch.bfloat16).save_pretrained(path)", 30),
        (
            "model = AutoModel.from_pretrained(path)",
            "base = Bert(config).to(torch.bfloat16)\nbase.save_pretrained(path)",
            30,
        ),
        ("model = AutoModel.from_pretrained(path)", "", 30),
        ("model = AutoModel.from_pretrained(path)", "model.to(torch.bfloat16)", None),
        ("model = Bert(config)", "Bert(config).to(torch.bfloat16).save_pretrained(path)", None),
    ],
)
def test_weights_that_are_loaded_short(make, made: str, cast: str, line: int | None) -> None:
    place = {"role": "module", "file": "train.py", "line": 30, "function": "main", "source": made}
    sites = [{"site": 30} | place]
    if cast:
        first = cast.split("\n", maxsplit=1)[0]
        sites.append({**place, "site": 31, "role": "cast", "line": 9, "function": "export", "source": first})
        sites[-1] |= {"excerpt": cast, "excerpt_line": 9}
    process = make.process(sites=sites, more={"modules": [{"model": 0, "module": "", "made_at": 30}]})
    found = loaded_short.place(process)
    assert (found.line if found else None) == line


@pytest.mark.parametrize(
    ("cast", "given", "line"),
    [
        ("self.model = model.to(dtype)", "tune = Session(model, lr=3e-4, dtype=torch.bfloat16)", 40),
        ("self.model = model.to(dtype)", "tune = Session(model, torch.float16)", 40),
        ("self.model = model.to(dtype)", "tune = Session(model, kept=torch.float16)", None),  # it may be another one
        ("self.model = model.to(DTYPE)", "tune = Session(model, torch.bfloat16)", None),  # no parameter
        ("self.model = model.to(dtype)", "KINDS = [torch.bfloat16]", None),  # no call
    ],
)
def test_a_type_that_another_function_hands_on(make, cast: str, given: str, line: int | None) -> None:
    text = f"class Session:\n    def __init__(self, model, lr=1.0, dtype=None):\n        {cast}"
    own = {"site": 20, "role": "cast", "file": "a.py", "line": 9, "function": "__init__", "source": cast}
    names = {"site": 21, "role": "sixteen", "file": "a.py", "line": 40, "function": "main", "source": given}
    sites = [own | {"excerpt": text, "excerpt_line": 7}, names | {"excerpt": f"    {given}", "excerpt_line": 40}]

    def found(sites: list[dict[str, Any]]) -> Location | None:
        process = make.process(sites=sites)
        return casts.given_by(process, process.site(20))

    place = found(sites)
    assert (place.line if place else None) == line
    assert found([*sites, names | {"site": 22, "line": 50, "source": "head = head.half()"}]) is None, "several do"
