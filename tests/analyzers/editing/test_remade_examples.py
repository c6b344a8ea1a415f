"""Examples that are the script's own lines: pasted where they are shown for, they mend it, and undo nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import placed, sites_of
from tracelyze.analyzers import context
from tracelyze.analyzers.rules import RULES
from tracelyze.analyzers.rules.clipping.clip_per_microbatch import one_clip
from tracelyze.analyzers.rules.finetuning.eos_never_target import masked_by_id
from tracelyze.analyzers.rules.finetuning.reference_is_policy import own_copies
from tracelyze.analyzers.rules.model.narrow_timesteps import drawn_timesteps
from tracelyze.analyzers.rules.updates.learning_rate_schedule import units, zero_rates
from tracelyze.analyzers.script.editing import trainer_examples
from tracelyze.analyzers.script.editing.remade import everywhere, frameworks, validating
from tracelyze.analyzers.script.editing.remade.precision import regions
from tracelyze.analyzers.script.modes import teachers
from tracelyze.diagnosis import Diff, Finding

VALIDATED = """\
def validate(model, loader):
    model.eval()
    for batch in loader:
        model.train()
        hits += model(batch).sum()
"""


def test_an_example_beside_an_edit_is_what_the_edit_leaves(make: Any) -> None:
    process, place = placed(make, "def train():\n    kept.append(out)\n", "loss", "kept.append")
    finding = Finding(
        rule="memory-leak", severity="warning", confidence="likely", title="", summary="", fix="",
        fix_code="kept.append(loss.detach())", location=place,
        diff=Diff("train.py", 2, ["    kept.append(out)"], ["    kept.append(out.detach())"]),
    )  # fmt: skip
    assert context.completed(finding, process, RULES[0]).fix_code == "kept.append(out.detach())"


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("answers = net(x).argmax(1)", "with torch.no_grad():\n    answers = net(x).argmax(1)"),
        ("hits.append(net(x).argmax(1))", "with torch.no_grad():\n    hits.append(net(x).argmax(1))"),
        ("for x, y in val_loader:", "with torch.no_grad():\n    for x, y in val_loader:\n        ...  # as it is"),
        ("def evaluate(net):", ""),
    ],
)  # fmt: skip
def test_what_validates_goes_under_no_grad_as_it_stands(make: Any, line: str, example: str) -> None:
    process, place = placed(make, f"def f():\n    {line}\n        pass\n", "forward", line)
    assert validating.under(process, place) == example
    assert validating.under(process, None) == ""


def test_a_mode_that_the_validation_itself_undoes_is_named(make: Any) -> None:
    roles = {"forward": "hits +=", "train-mode": "model.train()", "eval-mode": "model.eval()"}
    process = make.process(sites=sites_of(VALIDATED, **roles), evals=make.evals() | {"trained": [1] * 4})
    seen = process.location("forward")
    told = validating.mode(process, 0, seen)
    assert (told.place and told.place.line, told.code) == (4, "")
    assert "Line 4 puts the model back" in told.fix
    script = VALIDATED.replace("        model.train()", "        if again:\n            model.train()")
    process = make.process(sites=sites_of(script, **roles), evals=make.evals() | {"trained": [1] * 4})
    assert validating.mode(process, 0, process.location("forward")).place is None, "it may never have run"
    elsewhere = make.process(sites=sites_of(VALIDATED.replace("        model.train()\n", ""), forward="hits +="))
    assert validating.mode(elsewhere, 0, elsewhere.location("forward")) == (validating.FIX, validating.CODE, None, None)


PREVIEWED = """\
def preview(net):
    net.eval()
    show(net(x))
    net.train()

def validate(net):
    net.eval()
    preview(net)
    total = loss(net(held_x), held_y)
"""


def test_a_function_that_the_validation_calls_undoes_its_mode(make: Any) -> None:
    roles = {"train-mode": "net.train()", "eval-mode": "def validate", "forward": "total ="}
    back, into_eval, forward = sites_of(PREVIEWED, **roles)
    sites = [
        {**back, "function": "preview"},
        {**into_eval, "function": "validate", "line": 7, "source": "net.eval()"},
        {**forward, "function": "validate"},
    ]
    process = make.process(sites=sites, evals=make.evals() | {"trained": [1] * 4})
    told = validating.mode(process, 0, process.location("forward"))
    assert told.place is not None
    assert told.place.line == 4
    assert told.fix.startswith("Line 4 in preview(), which line 8 calls, puts the model back")
    assert told.code == "was_training = net.training  # first in preview()\n\nnet.train(was_training)  # line 4"


def test_a_copy_that_is_evaluated_is_the_one_to_switch(make: Any) -> None:
    source = "def main():\n    val = measure(ema.model(held_x), held_y)\n"
    models = [{"model": 0, "name": "Net", "called_as": "model"}, {"model": 1, "name": "Net", "called_as": "ema.model"}]
    evals = make.evals() | {"trained": [0] * 4, "model": [1] * 4}
    process, place = placed(make, source, "forward", "val =", models=models, evals=evals)
    assert validating.mode(process, 0, place).code.startswith("ema.model.eval()")
    trained = make.process(models=models, evals=evals | {"trained": [1] * 4}, sites=sites_of(source, forward="val ="))
    assert validating.mode(trained, 0, trained.site(1)).code == validating.CODE


def test_a_teacher_in_eval_mode_is_meant_to_be(make: Any) -> None:
    call = {"function": "kl_div", "site": 1, "training": True, "step": 3, "target_model": 0, "target_in_train": False}
    assert teachers.evaluates(make.process(more={"loss_calls": [call]}))
    assert not teachers.evaluates(make.process(more={"loss_calls": [call | {"target_in_train": True}]}))
    assert not teachers.evaluates(make.process())
    models = [{"model": 0, "called_as": "self.teacher", "sensitive": "Dropout"}, {"model": 1, "called_as": "net"}]
    assert teachers.evaluates(make.process(models=models)), "its dropouts are the only ones"
    assert not teachers.evaluates(make.process(models=[*models, {"model": 2, "sensitive": "Dropout"}]))


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("labels[ids == PAD] = -100", "labels[attention_mask == 0] = -100"),
        ("labels = labels.masked_fill(ids == tok.pad_token_id, -100)",
         "labels = labels.masked_fill(attention_mask == 0, -100)"),
        ("labels = torch.where(ids == pad, -100, labels)", "labels = torch.where(attention_mask == 0, -100, labels)"),
        ("labels[:, :prompt] = -100", None),
        ("labels[attention_mask == 0] = -100", None),
    ],
)  # fmt: skip
def test_padding_is_masked_where_it_is_masked_today(make: Any, line: str, example: str | None) -> None:
    """Labels that are made anew from the ids would have the prompts count again."""
    source = f"def collate(rows):\n    labels = made(rows)\n    {line}\n    return ids, labels\n"
    process, _ = placed(make, source, "labels", "labels = made")
    found = masked_by_id.line(process)
    assert (found is None) == (example is None)
    code = masked_by_id.example(process, found, 2)
    assert code.startswith(example or "labels = labels.masked_fill(")
    assert "input_ids" not in code


def test_a_library_that_the_script_does_not_use_is_in_no_example(make: Any) -> None:
    plain, _ = placed(make, "def main():\n    loss = measure(net(x), y)\n", "loss", "loss =")
    assert not frameworks.transformers(plain)
    assert not frameworks.peft(plain)
    tuned, _ = placed(make, "def main():\n    model = get_peft_model(model, config)\n", "module", "model =")
    assert frameworks.peft(tuned)
    assert frameworks.transformers(make.process(sites=[])), "nothing is known of the script"


def test_of_a_divergence_with_the_teacher_first_the_teacher_is_named(make: Any) -> None:
    row = {"function": "kl_div", "site": 1, "training": True, "input_model": 0, "target_model": 1,
           "target_trained": 6, "target_in_train": True, "value": 0.3}  # fmt: skip
    models = [{"model": 0, "name": "Net", "called_as": "teacher"}, {"model": 1, "name": "Net", "called_as": "student"}]
    rows = [{**row, "step": step} for step in range(1, 10)]
    finding = make.check("teacher-trains", make.process(models=models, more={"loss_calls": rows}))[2]
    assert finding.title.endswith("reach teacher (Net)")
    assert finding.fix_code.splitlines()[-1].startswith("teacher.requires_grad_(False)")


TWICE = """\
def evaluate(model, held):
    for batch in held:
        total += F.cross_entropy(model(batch).flatten(0, 1), batch.flatten()).item()

def train(model, data):
    for ids in data:
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        other = F.mse_loss(model(ids), ids)
"""


def test_other_lines_that_read_alike_are_named(make: Any) -> None:
    sites = sites_of(TWICE, loss="loss = ", forward="total +=")
    process = make.process(sites=sites)
    assert everywhere.lines(process, process.location("loss")) == [3]
    assert everywhere.said(process, process.location("loss")) == " Line 3 reads alike: change it as well."
    plain = make.process(
        sites=sites_of("def f():\n    loss = measure(a, b)\n    held = measure(c, d)\n", loss="loss = ")
    )
    assert everywhere.said(plain, plain.location("loss")) == "", "any two calls of one function read like that"
    cut = "def f():\n    x, y = ids[:, :-1], ids[:, 1:]\n    a, b = held[:, :-1], held[:, 1:]\n"
    process = make.process(sites=sites_of(cut, loss="x, y ="))
    assert everywhere.lines(process, process.location("loss")) == [3]


def test_a_norm_that_other_lines_read_is_not_moved_alone(make: Any) -> None:
    source = """\
def train():
    for x, y in loader:
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 1.0)
        if last:
            optimizer.step()
        log(norm.item(), norm=2)
"""
    process, place = placed(make, source, "clip", "norm = clip")
    assert one_clip.read_elsewhere(process, place).startswith(" Line 7 reads `norm`: below the clip")
    process, place = placed(make, source.replace("norm.item(), ", ""), "clip", "norm = clip")
    assert one_clip.read_elsewhere(process, place) == "", "an argument of that name"
    process, place = placed(make, source.replace("norm = clip", "clip"), "clip", "clip_grad_norm_(")
    assert one_clip.read_elsewhere(process, place) == ""


def test_a_region_holds_all_calls_of_the_model(make: Any) -> None:
    source = "def main():\n    loss = measure(model(x), y)\n    held = model(x_val)\n"
    process = make.process(sites=sites_of(source, **{"training-call": "loss = ", "forward": "held = "}))
    assert regions.said(process).endswith("in validation as well: lines 2 and 3.")
    assert regions.said(make.process(sites=sites_of(source, forward="held = "))) == ""


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("tuned = tuned.to(cfg.dtype)", "tuned = tuned.float()"),
        ("model.half()", "model.float()"),
        ("net = Net(8).to(device).bfloat16()", "net = Net(8).to(device).float()"),
        ("model = model.to(device, torch.bfloat16)", "model = model.to(device, torch.float32)"),
        (
            "lm = AutoModel.from_pretrained(path, torch_dtype=dtype)",
            "lm = AutoModel.from_pretrained(path, torch_dtype=",
        ),
        (
            "lm = AutoModel.from_pretrained(path, torch_dtype=torch.half).to(device)",
            "lm = AutoModel.from_pretrained(path, torch_dtype=torch.float32).to(device)",
        ),
        (  # its file says the type, unless the call does
            "lm = AutoModel.from_pretrained(path).to(device)",
            "lm = AutoModel.from_pretrained(path, dtype=torch.float32).to(device)",
        ),
        ("lm = AutoModel.from_pretrained(path, load_in_4bit=True)", ""),
        ("lm = PeftModel.from_pretrained(base, path)", ""),  # the type is that of the base
        ("model = model.to(torch.bfloat16)", "model = model.float()"),
        ("torch.set_default_dtype(torch.half)", "torch.set_default_dtype(torch.float32)"),
        ("model = model.to(device, dtype)", ""),  # which of the two is the type is not said
        ("a, b = first.half(), second.half()", ""),
    ],
)
def test_the_statement_that_makes_weights_short_with_float32(make: Any, source: str, made: str) -> None:
    process, place = placed(make, f"def main():\n    {source}\n", "cast", source)
    example = regions.with_float32_weights(process.longest, place).splitlines()[0]
    if not made:
        assert example == "model = model.float()  # before the optimizer is made"
    else:
        assert example.startswith(made)
        assert example.endswith("  # in place of line 2")


def test_a_trainer_opens_the_region_itself(make: Any) -> None:
    source = "def main():\n    trainer.train()\n    trainer.evaluate()\n"
    sites = sites_of(source, **{"step": ".train()", "training-call": ".train()", "forward": ".evaluate()"})
    process = make.process(sites=sites)
    assert regions.said(process) == ""
    example = trainer_examples.in_example(regions.with_float32_weights(process.longest, None), process)
    assert example.splitlines()[1:] == ["TrainingArguments(output_dir, bf16=True)  # beside what it is given today"]


@pytest.mark.parametrize(
    ("drawn", "loop", "alone"),
    [
        ("t = torch.randint(0, cfg.steps, (n,))", "pass", True),
        ("t = torch.randint(0, cfg.steps, (n,))", "for s in range(cfg.steps):", False),
        ("t = torch.randint(0, sample_steps, (n,))", "pass", False),
        ("t = torch.randint(0, 50, (n,))", "for s in range(50):", True),
    ],
)
def test_a_number_of_steps_that_a_sampler_goes_by_stays(make: Any, drawn: str, loop: str, alone: bool) -> None:
    process, place = placed(make, f"def train():\n    {drawn}\n    {loop}\n", "draw", "t = ")
    assert drawn_timesteps.ends_of_its_own(process, place) is alone


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("rg = logps(policy, good)", "rg = logps(reference, good)  # line 2"),
        ("r, s = logps(policy, a), logps(policy, b)", "r, s = logps(reference, a), logps(reference, b)  # line 2"),
        ("return model(ids)", "# and in line 2, which calls the model as its own reference: reference in its place"),
    ],
)
def test_a_reference_is_handed_over_where_the_model_was(make: Any, line: str, example: str) -> None:
    head = "def logps(model, ids):" if line.startswith("return") else "def train():"
    rows = sites_of(f"{head}\n    {line}\n", forward=line)
    rows[0]["function"] = head[4 : head.index("(")]
    rows.append({"site": 9, "role": "optimizer", "file": "train.py", "line": 40, "function": "main",
                 "source": "opt = Adam(policy.parameters())"})  # fmt: skip
    process = make.process(sites=rows)
    made = own_copies.of_model(process, None, process.site(1)).split("\n\n")
    assert made[-1] == example
    assert ("deepcopy(policy)" in made[1]) is not line.startswith("return")


@pytest.mark.parametrize("below", ["loss.backward()", "accelerator.backward(loss)", "print(loss)"])
def test_the_line_that_makes_the_loss_is_handed_the_trained_model_as_well(make: Any, below: str) -> None:
    """Which of its arguments is the reference is not known: the policy is not to be replaced there."""
    line = "loss, _ = preferences(policy, base, chosen)"
    rows = sites_of(f"def train():\n    {line}\n    {below}\n", forward=line)
    rows[0]["function"] = "train"
    rows.append({"site": 9, "role": "optimizer", "file": "train.py", "line": 40, "function": "main",
                 "source": "opt = Adam(policy.parameters())"})  # fmt: skip
    process = make.process(sites=rows)
    made = own_copies.of_model(process, None, process.site(1))
    assert ("preferences(reference, base, chosen)" in made) is ("backward" not in below)


@pytest.mark.parametrize(
    ("wraps", "calls", "code"),
    [
        (
            "policy = get_peft_model(base, lora)",
            "loss = dpo(policy, base, rows)",
            "loss = dpo(policy, reference, rows)",
        ),
        ("policy = peft.get_peft_model(base, lora)", "r = base(ids)", "r = reference(ids)"),
        ("base = get_peft_model(base, lora)", "loss = dpo(policy, base, rows)", ""),
        ("policy = get_peft_model(load(), lora)", "loss = dpo(policy, base, rows)", ""),
        ("policy = get_peft_model(base, lora)", "loss = dpo(policy, other, rows)", ""),
    ],
)
def test_a_reference_that_adapters_were_put_into(make: Any, wraps: str, calls: str, code: str) -> None:
    """The copy has to be made above: below, the model holds the adapters."""
    rows = sites_of(f"def train():\n    {wraps}\n    {calls}\n", forward=calls)
    process = make.process(sites=rows)
    found = own_copies.wrapped(process, process.site(1))
    assert (found is not None) is bool(code)
    if found is not None:
        assert (found.place.line, "into base itself" in found.why) == (2, True)
        assert "reference = copy.deepcopy(base).eval().requires_grad_(False)  # above line 2" in found.code
        assert f"{code}  # line 3" in found.code
        assert own_copies.of_model(process, None, process.site(1)) == found.code


@pytest.mark.parametrize(
    ("horizon", "epochs", "code"),
    [
        (10, 10, units.PER_EPOCH),
        (400, 10, units.PER_BATCH),
        (77, 10, units.EITHER),
        (None, 10, units.EITHER),
        (400, None, units.PER_BATCH),
    ],
)
def test_a_schedule_is_stepped_as_its_length_counts(horizon: int | None, epochs: int | None, code: str) -> None:
    assert units.of_length(horizon, 400, epochs, 1.25) == code
    assert '"interval"' in units.in_lightning(code)


@pytest.mark.parametrize(
    ("line", "longer"),
    [
        ("s = CosineAnnealingLR(opt, epochs)", "s = CosineAnnealingLR(opt, epochs * 5)"),
        ("s = LinearLR(opt, 1.0, 0.0, 2 * n)", "s = LinearLR(opt, 1.0, 0.0, (2 * n) * 5)"),
        ("s = OneCycleLR(opt, 0.1, total_steps=n)", "s = OneCycleLR(opt, 0.1, total_steps=n * 5)"),
        ("s = get_linear_schedule_with_warmup(opt, 10, n)", "s = get_linear_schedule_with_warmup(opt, 10, n * 5)"),
        ("s = LambdaLR(opt, lambda step: max(0, 1 - step / n))", ""),
        ("s = CosineAnnealingLR(*given)", ""),
    ],
)
def test_a_length_that_is_given_by_its_place_is_multiplied(make: Any, line: str, longer: str) -> None:
    name = line[4 : line.index("(")]
    process, _ = placed(make, f"def main():\n    {line}\n", "scheduler", line)
    assert zero_rates._of_full_length(process.optimizations[0], {"made_at": 1, "name": name}, 5) == longer


@pytest.mark.parametrize(
    ("given", "longer"),
    [("self.trainer.max_epochs", "self.trainer.estimated_stepping_batches"), ("epochs", "epochs * len(loader)")],
)
def test_the_length_of_a_schedule_has_a_line_of_its_own(make: Any, given: str, longer: str) -> None:
    lines = ["s = get_linear_schedule_with_warmup(opt, 5,", f"    num_training_steps={given},", ")"]
    script = "def main():\n" + "".join(f"    {one}\n" for one in lines)
    process, line = placed(make, script, "scheduler", lines[0])
    row = {"made_at": 1, "name": "LambdaLR"}
    place = zero_rates._line_of_length(process.optimizations[0], row)
    assert (place.line, place.source) == (line.line + 1, f"num_training_steps={given},")
    code = zero_rates._of_full_length(process.optimizations[0], row)
    assert code == "# stepped after every batch:\n" + "\n".join(lines).replace(given, longer)
