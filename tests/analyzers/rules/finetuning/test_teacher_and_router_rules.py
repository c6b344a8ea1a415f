"""teacher-trains and router-collapse: what they fire on, and what looks the same."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.script.editing import unknown_names

TEACHER, ROUTER = "teacher-trains", "router-collapse"
CALL = {
    "function": "kl_div",
    "site": 1,
    "training": True,
    "reduction": "batchmean",
    "input_shape": "32x6",
    "target_shape": "32x6",
    "value": 0.3,
    "target_trained": 6,
    "input_model": 1,
    "target_model": 0,
    "target_in_train": False,
}
MODELS = [{"model": 0, "name": "Large"}, {"model": 1, "name": "Small"}]


def calls(make: Any, *changes: dict[str, Any]) -> Any:
    rows = [{**CALL, "step": step, **change} for change in changes or ({},) for step in range(1, 10)]
    return make.process(models=MODELS, more={"loss_calls": rows})


def test_the_teacher_goes_by_its_name_in_the_script(make: Any) -> None:
    rows = [{**CALL, "step": step} for step in range(1, 10)]
    names = [{"model": 0, "name": "Net", "called_as": "self.teacher"}, {"model": 1, "name": "Net", "called_as": "net"}]
    finding = make.check(TEACHER, make.process(models=names, more={"loss_calls": rows}))[2]
    assert finding.title.endswith("reach teacher (Net)")
    assert "softmax" not in finding.fix_code, "the script's own may have a temperature"
    alike = [{**one, "called_as": "net"} for one in names]
    finding = make.check(TEACHER, make.process(models=alike, more={"loss_calls": rows}))[2]
    assert finding.title.endswith("reach Net"), "a name that both have tells them apart as little as the class"


@pytest.mark.parametrize(
    ("made", "number"),
    [
        ("t_feat, t_logits = self.big(x)", 41),
        ("s_logits, t_logits = self.both(x)", 80),  # what the student gives stands on the line, too
        ("t_logits = F.log_softmax(wide, -1)", 80),
    ],
)
def test_the_output_of_a_teacher_where_the_optimizer_is_given_groups(make: Any, made: str, number: int) -> None:
    """The line that makes the optimizer does not say whose tensors they are: that which calls the teacher is named."""
    text = ["        hot = 3.0", f"        {made}", "        soft = F.kl_div(s_logits / hot, t_logits / hot)"]
    sites = [
        {"site": 1, "role": "loss", "file": "a.py", "line": 42, "function": "step", "source": text[2].strip()}
        | {"excerpt_line": 40, "excerpt": "\n".join(text)},
        {"site": 2, "role": "optimizer", "file": "a.py", "line": 80, "function": "set", "source": "o = AdamW(groups)"},
    ]
    rows = [{**CALL, "step": step} for step in range(1, 10)]
    optimizers = [{"optimizer": 0, "name": "AdamW", "made_at": 2}]
    process = make.process(models=MODELS, more={"loss_calls": rows}, sites=sites, optimizers=optimizers)
    finding = make.check(TEACHER, process)[2]
    assert finding.location.line == number
    assert finding.fix_code.startswith("with torch.no_grad():\n    t_feat, t_logits = self.big(x)") == (number == 41)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ({"big": "Deep", "small": "Shallow"}, "whole.big"),
        ({"old_teacher": "Deep", "student": "Deep"}, "whole.old_teacher"),
        ({"first": "Deep", "second": "Deep"}, "teacher"),  # which of them is not known
        ({"big": "Wide", "small": "Shallow"}, "teacher"),
    ],
)
def test_a_teacher_within_the_model_that_is_trained_goes_by_its_name_there(make: Any, parts: Any, name: str) -> None:
    """The line that makes the optimizer knows the whole model only."""
    rows = [{**CALL, "step": step, "input_model": None} for step in range(1, 10)]
    whole = {"model": 2, "name": "Whole", "parameters": 9, "elements": 90}
    modules = [{"model": 2, "module": part, "kind": kind, "made_at": 5} for part, kind in parts.items()]
    modules += [{"model": 2, "module": f"{part}.0", "kind": "Linear", "made_at": 6} for part in parts]
    modules += [{"model": 0, "module": "", "kind": "Deep", "made_at": 5}]
    modules += [{"model": 0, "module": "0", "kind": "Linear", "made_at": 6}]
    models = [{"parameters": 4, "elements": 40, **MODELS[0]}, whole]
    line = {"file": "t.py", "line": 9, "function": "fit", "source": "opt = Adam(whole.parameters())"}
    process = make.process(
        models=models,
        optimizers=[{"optimizer": 0, "name": "Adam", "parameters": 9, "elements": 90, "made_at": 60}],
        sites=[{"site": 60, "role": "optimizer", "excerpt": line["source"], "excerpt_line": 9, **line}],
        more={"loss_calls": rows, "modules": modules},
    )
    finding = make.check(TEACHER, process)[2]
    code = finding.fix_code.removeprefix(f"{unknown_names.NOTE}teacher\n")
    assert code.startswith(f"{name}.requires_grad_(False)")
    assert (code != finding.fix_code) == (name == "teacher"), "no name of the script: the example says so"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("soft = self.old(x)", "self.old"),
        ("loss = distill(self.student(x), y)", "teacher"),
        ("soft = self.net(x)", "self.net"),
        ("soft = pick(self.old)(x)", "teacher"),
    ],
)
def test_a_teacher_that_was_trained_before_goes_by_its_name_in_this_training(make: Any, line: str, name: str) -> None:
    models = [
        {"called_as": "self.net", "parameters": 6, **MODELS[0]},
        {"called_as": "self.student", "parameters": 4, **MODELS[1]},
    ]
    made = {"site": 60, "role": "optimizer", "file": "t.py", "line": 9, "function": "fit"}
    call = {"site": 61, "role": "training-call", "file": "t.py", "line": 4, "function": "step", "source": line}
    process = make.process(
        models=models,
        optimizers=[{"optimizer": 0, "name": "Adam", "made_at": 60, "shares": 6}],
        sites=[made | {"source": "return Adam(self.parameters())"}, call],
        more={"loss_calls": [{**CALL, "step": step} for step in range(1, 10)]},
    )
    finding = make.check(TEACHER, process)[2]
    assert finding.fix_code.removeprefix(f"{unknown_names.NOTE}teacher\n").startswith(f"{name}.requires_grad_(False)")
    assert ("net (" in finding.title) == (name == "self.net")


@pytest.mark.parametrize(("name", "status"), [("self.teacher", "fired"), ("self.peer", "passed")])
def test_a_teacher_that_stands_still_at_first(make: Any, name: str, status: str) -> None:
    """Its loss is looked at ever more rarely; the difference within it shows that the teacher trains later on."""
    models = [MODELS[0] | {"called_as": "self.net", "parameters": 6}, MODELS[1] | {"called_as": "self.small"}]
    sites = [
        {"site": 1, "role": "loss", "line": 42, "function": "training_step", "source": "soft = F.kl_div(a, b)"},
        {"site": 2, "role": "optimizer", "line": 50, "function": "fit", "source": "return Adam(self.parameters())"},
        {"site": 3, "role": "training-call", "line": 41, "function": "training_step"}
        | {"source": f"s, t = self.small(x), {name}(x)"},
        {"site": 4, "role": "freeze", "line": 20, "function": "start", "source": "self.teacher.requires_grad_(False)"},
        {"site": 5, "role": "freeze", "line": 60, "function": "phase", "source": "self.requires_grad_(True)"},
        {"site": 6, "role": "backward", "line": 70, "function": "main", "source": "trainer.fit(task)"},
    ]
    still = {"target_trained": 0, "target_model": None, "input_model": None}
    trains = {"function": "the written-out difference", "site": 6, "target_in_train": True}
    rows = [CALL | still | {"step": step} for step in range(1, 10)]
    rows += [CALL | trains | {"step": step} for step in range(30, 40, 2)]
    optimizers = [{"optimizer": 0, "name": "Adam", "made_at": 0, "parameters": 6}, {"optimizer": 1, "made_at": 2}]
    steps = make.steps()
    steps["optimizer"] = [1] * len(steps["step"])
    more, sites = {"loss_calls": rows}, [one | {"file": "a.py"} for one in sites]
    process = make.process(steps, models=models, more=more, sites=sites, optimizers=optimizers)
    found, reason, finding = make.check(TEACHER, process)
    assert found == status, reason
    if finding is not None:
        assert (finding.location.line, finding.seen_at.line) == (60, 42)
        assert "gradients of kl_div reach teacher (Large)" in finding.title
        assert "Up to step 9 nothing of it was trained, in 9 looks. Line 60" in finding.summary
        assert finding.fix_code.startswith("self.teacher.requires_grad_(False)  # right behind line 60")


@pytest.mark.parametrize(
    ("change", "confidence"),
    [
        ({}, "certain"),
        ({"target_in_train": True}, "likely"),
        ({"function": "mse_loss"}, "certain"),
        ({"function": "the written-out difference"}, "likely"),
        ({"function": "binary_cross_entropy_with_logits"}, "certain"),
    ],
)
def test_a_teacher_that_is_trained(make: Any, change: dict[str, Any], confidence: str) -> None:
    status, reason, finding = make.check(TEACHER, calls(make, change))
    assert status == "fired", reason
    assert (finding.severity, finding.confidence, finding.location.line) == ("warning", confidence, 41)
    assert "Large" in finding.title


def test_targets_that_stand_still_and_models_that_agree(make: Any) -> None:
    still = {"target_trained": 0, "target_model": None, "input_model": None}
    mutual = {"site": 2, "input_model": 0, "target_model": 1}
    for changes in (
        (still,),
        ({}, mutual),
        ({"function": "mse_loss", "target_in_train": True},),
        ({"function": "the written-out difference", "target_in_train": True},),
    ):
        assert make.check(TEACHER, calls(make, *changes))[0] == "passed"
    assert make.check(TEACHER, make.process())[0] == "skipped"


@pytest.mark.parametrize(
    ("target", "student", "status"),
    [
        ("self.target", "self.predictor", "fired"),
        ("random_target_net", "predictor", "fired"),
        ("agent.target_critic", "agent.critic", "fired"),
        ("self.target", "self.source", "passed"),  # two domains that are to agree
        ("target_encoder", "query_encoder", "passed"),  # two towers
        ("targets_head", "net", "passed"),
    ],
)
def test_a_target_that_is_to_stand_still_by_its_name(make: Any, target: str, student: str, status: str) -> None:
    """Both are in train mode, as all parts of one module are: the names alone tell which of them is to move."""
    rows = [{**CALL, "step": step, "function": "mse_loss", "target_in_train": True} for step in range(1, 10)]
    models = [MODELS[0] | {"called_as": target}, MODELS[1] | {"called_as": student}]
    found, reason, finding = make.check(TEACHER, make.process(models=models, more={"loss_calls": rows}))
    assert found == status, reason
    assert finding is None or finding.confidence == "likely"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"target_part": "teacher", "target_in_train": True}, "fired"),
        ({"target_part": "towers.old", "target_in_train": False}, "fired"),
        ({"target_part": "teacher", "target_in_train": True, "function": "mse_loss"}, "fired"),
        ({"target_part": "posterior", "target_in_train": True}, "passed"),  # both are meant to move
        ({"target_part": "image_tower", "target_in_train": True, "function": "mse_loss"}, "passed"),
        ({"target_part": "teacher", "function": "the written-out difference"}, "passed"),  # which side is the target?
        ({"target_part": None, "target_in_train": None}, "passed"),
    ],
)
def test_a_teacher_that_is_a_part_of_the_model(make: Any, change: dict[str, Any], status: str) -> None:
    """It is not called by itself: what tells it from a second head is its mode, or its name."""
    found, reason, finding = make.check(TEACHER, calls(make, {"target_model": None, "input_model": None} | change))
    assert found == status, reason
    assert finding is None or change["target_part"] in finding.title


def gate(make: Any, unused: float, share: float, looks: int = 6, elements: int = 4096, **more: Any) -> Any:
    row = {"module": "moe.router", "kind": "Linear", "elements": elements, "experts": 8, "idle": unused}
    rows = [row | {"step": 20 * n, "busiest": 3.0, "busiest_share": share} for n in range(looks)]
    for name, values in more.items():
        rows = [one | {name: value} for one, value in zip(rows, values, strict=True)]
    return make.process(more={"activations": rows})


def test_a_gate_with_favourites(make: Any) -> None:
    for idle, share, confidence in ((7.0, 0.97, "certain"), (5.0, 0.5, "likely")):
        status, reason, finding = make.check(ROUTER, gate(make, idle, share))
        assert status == "fired", reason
        assert (finding.severity, finding.confidence) == ("warning", confidence)


def test_other_gates_are_counted_where_there_are_some(make: Any) -> None:
    assert "gates" not in make.check(ROUTER, gate(make, 7.0, 0.97))[2].summary
    rows = list(gate(make, 7.0, 0.97).tables["activations"].records())
    rows += [row | {"module": "second.router", "idle": 0.0, "busiest_share": 0.2} for row in rows]
    assert "(1 of 2 gates is like this)" in make.check(ROUTER, make.process(more={"activations": rows}))[2].summary


def test_since_when_a_gate_has_favourites(make: Any) -> None:
    assert make.check(ROUTER, gate(make, 7.0, 0.97))[2].first_step == 1, "what follows from it begins there, too"
    late = gate(make, 7.0, 0.97, idle=[0.0, 7.0, 7.0, 7.0, 7.0, 7.0])
    assert make.check(ROUTER, late)[2].first_step == 20


@pytest.mark.parametrize(
    ("source", "function", "line"),
    [
        ("loss = F.mse_loss(out, y)", "main", 9),
        ("self.loss_of(out, y)", "main", 12),  # where it is assigned is not known
        ("loss = F.mse_loss(out, y)", "forward", 12),
    ],
)
def test_a_balance_is_added_where_the_loss_is_assigned(make: Any, source: str, function: str, line: int) -> None:
    row = {"module": "moe.router", "kind": "Linear", "elements": 4096, "experts": 8, "idle": 6.0}
    rows = [row | {"step": 20 * n, "busiest": 3.0, "busiest_share": 0.6} for n in range(6)]
    at = {"file": "train.py", "function": "main"}
    sites = [
        at | {"site": 90, "role": "loss", "line": 9, "source": source, "function": function},
        at | {"site": 91, "role": "backward", "line": 12, "source": "loss.backward()"},
    ]
    finding = make.check(ROUTER, make.process(sites=sites, more={"activations": rows}))[2]
    assert finding.location.line == line


def test_a_gate_that_collapses_after_most_looks(make: Any) -> None:
    """Looks get rarer: three of twelve lie in the last two thirds of the run."""
    steps = [1, 10, 15, 23, 33, 50, 75, 113, 140, 150, 250, 350]
    idle = [0.0] * 9 + [5.0, 6.0, 6.0]
    gone = gate(make, 0.0, 0.6, looks=12, step=steps, idle=idle, busiest=[4.0] * 10 + [2.0] * 2)
    finding = make.check(ROUTER, gone)[2]
    assert finding.first_step == 150
    assert finding.summary.startswith("Since step 150, 6 of the 8 experts")
    for changed in (
        {"idle": [0.0] * 10 + [6.0, 6.0]},  # two looks
        {"busiest": [float(number) for number in range(12)]},  # batches of one domain each
        {"step": [*steps[:9], 250, 300, 350]},  # of 400 steps: less than half of the run
        {"idle": [0.0] * 9 + [5.0, 0.0, 6.0]},
    ):
        columns = {"step": steps, "idle": idle, "busiest": [4.0] * 10 + [2.0] * 2} | changed
        assert make.check(ROUTER, gate(make, 0.0, 0.6, looks=12, **columns))[0] == "passed", changed


def test_a_gate_of_a_small_batch(make: Any) -> None:
    assert make.check(ROUTER, gate(make, 7.0, 0.97, elements=400))[0] == "fired"  # 50 tokens for 8 experts
    assert make.check(ROUTER, gate(make, 1.0, 0.3, elements=400))[0] == "passed"


def test_gates_that_share_out(make: Any) -> None:
    assert make.check(ROUTER, gate(make, 1.0, 0.3))[0] == "passed"
    assert make.check(ROUTER, gate(make, 0.0, 0.2, idle=[7.0, 7.0, 0.0, 0.0, 0.0, 0.0]))[0] == "passed", "first steps"
    domains = [float(n) for n in range(6)]
    assert make.check(ROUTER, gate(make, 7.0, 1.0, busiest=domains))[0] == "passed", "batches of one domain each"
    assert make.check(ROUTER, gate(make, 7.0, 1.0, elements=64))[0] == "skipped", "few tokens"
    assert "fewer than 4 tokens" in make.check(ROUTER, gate(make, 7.0, 1.0, elements=64))[1]
    assert make.check(ROUTER, gate(make, 7.0, 1.0, looks=1))[0] == "skipped"
    assert make.check(ROUTER, make.process())[0] == "skipped"


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("loss = mse - 0.1 * balance", "loss = mse + 0.1 * balance"),
        ("loss -= args.aux_weight * aux_loss", "loss += args.aux_weight * aux_loss"),
        ("return task_loss - self.alpha * out.load_balancing", "return task_loss + self.alpha * out.load_balancing"),
        ("total_loss = ce(a, b) - balance * 0.01", "total_loss = ce(a, b) + balance * 0.01"),
        ("(mse - (w * aux)).backward()", "(mse + (w * aux)).backward()"),
        ("loss = mse + 0.1 * balance", None),
        ("loss = mse - 0.1 * load_entropy", None),  # more of it is a better balance
        ("loss = mse + 0.1 * (1 - balance)", None),
        ("loss = mse - 0.1 * baseline", None),
        ("spread = highest - load", None),  # no loss
        ("loss = mse  # - balance", None),
    ],
)
def test_a_balance_that_is_subtracted_is_the_line_to_change(make: Any, line: str, example: str | None) -> None:
    place = {"file": "t.py", "line": 9, "function": "fit", "source": line, "excerpt": line, "excerpt_line": 9}
    process = gate(make, 7.0, 0.97)
    process = make.process(
        more={"activations": list(process.tables["activations"].records())},
        sites=[{"site": 70, "role": "training-call", **place}],
    )
    finding = make.check(ROUTER, process)[2]
    assert (finding.location is not None and finding.location.line == 9) == (example is not None)
    assert finding.fix_code.split("\n")[-1] == (example or finding.fix_code.split("\n")[-1])
    assert "subtract" in finding.fix, "a higher weight would make it worse"


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("self.bias += self.rate * (load - load.mean())", "self.bias -= self.rate * (load - load.mean())"),
        ("bias -= rate * torch.sign(counts.mean() - counts)", "bias += rate * torch.sign(counts.mean() - counts)"),
        ("self.bias = self.bias + lr * (usage - 1 / n)", "self.bias = self.bias - lr * (usage - 1 / n)"),
        ("moe.bias.data.add_(rate * (load - target).sign())", "moe.bias.data.sub_(rate * (load - target).sign())"),
        ("self.bias += self.rate * (load.mean() - load)", None),  # as it is to be
        ("self.bias.sub_(rate * (load - load.mean()))", None),
        ("self.bias += -self.rate * (load - load.mean())", None),
        ("self.bias += self.rate * (scores - scores.mean())", None),  # of what is not told
        ("self.bias += update", None),
    ],
)
def test_a_bias_that_is_raised_for_experts_with_most_tokens(make: Any, line: str, example: str | None) -> None:
    place = {"file": "t.py", "line": 9, "function": "forward", "source": line}
    sites = [{"site": 70, "role": "balance", **place}]
    rows = list(gate(make, 7.0, 0.97).tables["activations"].records())
    finding = make.check(ROUTER, make.process(more={"activations": rows}, sites=sites))[2]
    assert (finding.location is not None and finding.location.line == 9) == (example is not None)
    assert example is None or finding.fix_code == example


@pytest.mark.parametrize(
    ("above", "line", "example"),
    [
        (["error = load - load.mean()"], "bias.add_(rate * error / total)", "bias.sub_(rate * error / total)"),
        (["error = load.mean() - load"], "bias -= rate * error.sign()", "bias += rate * error.sign()"),
        (["error = load.mean() - load"], "bias.add_(rate * error)", None),  # as it is to be
        (["error = load - load.mean()"], "bias += rate * -error", None),
        (["error = load - load.mean()", "error = -error"], "bias += rate * error", None),
        (["error = load - load.mean()", "error *= -1"], "bias += rate * error", None),
        (["scale, error = 1, load - load.mean()"], "bias += rate * error", None),
        (["error = scores - scores.mean()"], "bias += rate * error", None),  # of what is not told
        (["if late:", "    error = load - load.mean()"], "bias += rate * error", None),  # or of what it was before
    ],
)
def test_what_a_bias_is_moved_by_may_have_a_name(make: Any, above: list[str], line: str, example: str | None) -> None:
    lines = ["def rebalance(self):", *(f"    {one}" for one in [*above, line])]
    place = {"file": "t.py", "line": len(lines), "function": "rebalance", "source": line}
    sites = [{"site": 70, "role": "balance", "excerpt": "\n".join(lines), "excerpt_line": 1, **place}]
    rows = list(gate(make, 7.0, 0.97).tables["activations"].records())
    finding = make.check(ROUTER, make.process(more={"activations": rows}, sites=sites))[2]
    assert (finding.location is not None and finding.location.line == len(lines)) == (example is not None)
    assert example is None or finding.fix_code == example


@pytest.mark.parametrize(
    ("lines", "argv", "named"),
    [
        (["balance_weight: float = 0.0"], [], True),
        (["router_aux_loss_coef=0.0,"], [], True),
        (["aux_alpha = 0"], [], True),
        (["balance_weight: float = 0.0", "Config(balance_weight=0.01)"], [], False),
        (["balance_weight: float = 0.0"], ["--balance-weight", "0.01"], False),
        (["balance_weight: float = 0.001"], [], False),  # too little, and not nothing
        (["balance_weight = 0 if step < 100 else 0.01"], [], False),
        (["balance_weight: float = 0.0", "self.balance_weight = min(0.01, step / 1000)"], [], False),
        (["balance_weight: float = 0.0", "self.balance_weight = args.balance_weight"], [], True),
        (["balance_loss = 0.0"], [], False),  # a sum that begins
        (["router_z_loss_coef: float = 0.0"], [], False),
    ],
)
@pytest.mark.parametrize("role", ["constant", "module"])
def test_a_balance_that_weighs_nothing(make: Any, lines: list[str], argv: list[str], named: bool, role: str) -> None:
    sites = []
    for at, line in enumerate(lines):
        name, _, value = line.removeprefix("Config(").rstrip("),").partition("=")
        name = name.split(":")[0].strip()
        site = {"site": 70 + at, "role": role, "file": "t.py", "line": 9 + 40 * at, "function": "f", "source": line}
        site |= {"excerpt": line, "excerpt_line": 9 + 40 * at}
        sites.append(site | ({"name": name, "own_name": name, "value": value.strip()} if role == "constant" else {}))
    rows = list(gate(make, 7.0, 0.97).tables["activations"].records())
    facts = {"argv": ["t.py", *argv]}
    finding = make.check(ROUTER, make.process(more={"activations": rows}, sites=sites, facts=facts))[2]
    assert (finding.location is not None and finding.location.line == 9) is named
    assert ("counts for nothing" in finding.fix) is named
    assert "0.01" in finding.fix_code


COUNTED = "share = F.one_hot(pick, self.n_experts).float().mean(dim=0)"
BALANCE = "self.balance_loss = self.n_experts * (share * share).sum()"
OF_GATE = "share * probs.flatten(0, -2).mean(0)"


@pytest.mark.parametrize(
    ("lines", "example"),
    [
        ([COUNTED, BALANCE], f"self.balance_loss = self.n_experts * ({OF_GATE}).sum()"),
        ([COUNTED, "self.balance_loss = share.pow(2).sum()"], f"self.balance_loss = ({OF_GATE}).sum()"),
        ([COUNTED, "self.balance_loss = (share ** 2).sum() * 8"], f"self.balance_loss = (({OF_GATE})).sum() * 8"),
        (["share = torch.bincount(pick, minlength=8) / n", "self.balance_loss = share.var()"], "one_hot("),
        ([COUNTED, "self.balance_loss = ((share - 1 / self.n_experts) ** 2).sum()"], "one_hot("),
        ([COUNTED, "self.balance_loss = self.n_experts * (share * probs.mean(0)).sum()"], None),
        ([COUNTED, "usage = probs.mean(0)", "self.balance_loss = torch.dot(share, usage)", BALANCE], None),
        (["share = (F.one_hot(pick, 8) * probs).mean(0)", BALANCE], None),  # the probabilities are in it
        ([COUNTED, "self.busy = (share * share).sum()"], None),  # which no loss takes
        ([COUNTED, "self.balance_loss = share.sum()"], None),
        (["share = probs.mean(0)", BALANCE], None),
    ],
)
def test_a_balance_of_counts_alone(make: Any, lines: list[str], example: str | None) -> None:
    text = ["def forward(self, x):", "    probs = self.gate(x).softmax(dim=-1)", *(f"    {one}" for one in lines)]
    at = {"file": "t.py", "function": "forward", "excerpt": "\n".join(text), "excerpt_line": 1}
    sites = [at | {"site": 70, "role": "counts", "line": 3, "source": lines[0]}]
    total = "loss = ce + 0.1 * model.moe.balance_loss"
    excerpt = {"source": total, "excerpt": total, "excerpt_line": 80}
    sites.append({"site": 71, "role": "loss", "file": "t.py", "line": 80, "function": "main", **excerpt})
    rows = list(gate(make, 7.0, 0.97).tables["activations"].records())
    finding = make.check(ROUTER, make.process(more={"activations": rows}, sites=sites))[2]
    assert ("have no gradient, so a term" in finding.fix) == (example is not None)
    assert (finding.location is not None and finding.location.line == 2 + len(lines)) == (example is not None)
    assert example is None or example in finding.fix_code


@pytest.mark.parametrize(
    ("entropy", "loss", "example"),
    [
        ("self.aux = -(use * use.clamp(min=1e-9).log()).sum()", "loss = ce + 0.1 * net.aux", True),
        ("balance = -torch.sum(use * torch.log(use + 1e-9))", "loss += w * balance", True),
        ("self.aux = -(use * use.log()).sum()", "loss = ce - 0.1 * net.aux", False),
        ("self.aux = (use * use.log()).sum()", "loss = ce + 0.1 * net.aux", False),
        ("self.aux = -(use * use.log()).sum()", "loss = sum([ce, -net.aux + other])", False),
        ("self.aux = -(odds * odds.log()).sum(-1).mean()", "loss = ce + 0.1 * net.aux", False),  # of each token
        ("self.aux = -(odds * odds.log()).sum()", "loss = ce + 0.1 * net.aux", False),
    ],
)
def test_an_entropy_of_shares_that_is_lowered(make: Any, entropy: str, loss: str, example: bool) -> None:
    place = {"role": "loss", "file": "t.py"}
    forward = {"site": 70, "line": 8, "function": "forward", "source": "use = odds.mean(0)", "excerpt_line": 8}
    fit = {"site": 71, "line": 40, "function": "fit", "source": loss, "excerpt": loss, "excerpt_line": 40}
    sites = [place | forward | {"excerpt": f"use = odds.mean(0)\n{entropy}"}, place | fit]
    rows = list(gate(make, 7.0, 0.97).tables["activations"].records())
    finding = make.check(ROUTER, make.process(more={"activations": rows}, sites=sites))[2]
    assert (finding.location is not None and finding.location.line == 9) is example
    assert ("line 40 adds the balance" in finding.fix) is example
    assert finding.fix_code == entropy.replace("= -", "= ") or not example


@pytest.mark.parametrize("before", [1, 12])
def test_a_teacher_that_was_trained_alone_before_did_not_stand_still(make: Any, before: int) -> None:
    """At the first step of the student's optimizer nobody knows what it will train; before, the line that computes the
    loss may have compared the teacher with labels."""
    steps = make.steps()
    steps["optimizer"] = [0] * 12 + [1] * (len(steps["step"]) - 12)
    still = {"target_trained": 0, "target_model": None, "input_model": None}
    rows = [CALL | still | {"step": step} for step in range(13 - before, 13)]
    rows += [CALL | {"step": step} for step in range(13, 23)]
    optimizers = [{"optimizer": 0, "name": "Adam"}, {"optimizer": 1, "name": "Adam"}]
    found, reason, finding = make.check(
        TEACHER, make.process(steps, models=MODELS, more={"loss_calls": rows}, optimizers=optimizers)
    )
    assert found == "fired", reason
    assert "nothing of it was trained" not in finding.summary
