"""Examples in the program's own words: pasted into the program that they were made for, they run."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.rules.nonfinite.loss_nonfinite import nonfinite_remedy
from tracelyze.analyzers.script.editing import own_names, trainer_examples
from tracelyze.diagnosis import Location

EPOCHS = """\
for epoch in range(epochs):
    sampler.set_epoch(epoch)"""
CLASSIC = """\
for epoch in range(3):
    for xb, yb in train_dl:
        out = net(xb)
        cost = mse(out, yb)
        cost.backward()
        opt.step()
"""
ACCELERATED = CLASSIC.replace("cost.backward()", "accelerator.backward(cost)")
SCALED = CLASSIC.replace("cost.backward()", "scaler.scale(cost).backward()").replace("opt.step()", "scaler.step(opt)")
MADE = "opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)"
STEP = "loss.backward()\noptimizer.step()\noptimizer.zero_grad()"
CLIP = "loss.backward()\ntorch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)\noptimizer.step()"


def process_of(make: Any, loop: str, **more: str) -> Any:
    """A run of this loop; `more` are lines elsewhere, by their role."""
    inside = {"loader": "for xb", "loss": "cost = ", "backward": "backward(", "step": ".step("}
    lines = loop.splitlines()
    rows = [
        site(number, role, number, lines[number - 1], "train", loop)
        for role, text in inside.items()
        if (number := next((n for n, line in enumerate(lines, 1) if text in line), 0))
    ]
    others = {"optimizer": MADE, "dataloader": "train_dl = DataLoader(train_set, batch_size=8)"} | more
    rows += [site(100 + n, role, 100 + n, line, "main", line) for n, (role, line) in enumerate(others.items()) if line]
    return make.process(sites=rows)


def site(number: int, role: str, line: int, source: str, function: str, excerpt: str) -> dict[str, Any]:
    first = line if source == excerpt else 1
    place = {"file": "train.py", "line": line, "function": function, "source": source.strip()}
    return {"site": number, "role": role, **place, "excerpt": excerpt.rstrip(), "excerpt_line": first}


@pytest.mark.parametrize(
    ("loop", "code", "own"),
    [
        (CLASSIC, STEP, "cost.backward()\nopt.step()\nopt.zero_grad()"),
        (ACCELERATED, "(loss / 4).backward()", "accelerator.backward(cost / 4)"),
        (
            SCALED,
            "loss.backward()\noptimizer.step()",
            "scaler.scale(cost).backward()\nscaler.step(opt)\nscaler.update()",
        ),
        (
            CLASSIC,
            "with a():\n    loss = criterion(model(x), y)",
            "with a():\n    out = net(xb)\n    cost = mse(out, yb)",
        ),
        (CLASSIC, "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)", MADE),
        (CLASSIC, "loader = DataLoader(dataset, sampler=s)", "train_dl = DataLoader(train_set, sampler=s)"),
    ],
)
def test_an_example_has_the_names_of_the_program(make, loop, code, own) -> None:
    assert own_names.in_example(code, process_of(make, loop), None) == own


@pytest.mark.parametrize(("called", "own"), [("model", "model.train()"), ("net", "net.train()")])
def test_the_place_calls_a_model_by_another_name(make, called: str, own: str) -> None:
    """A function that trains is handed the model, which another one makes and calls differently."""
    process = process_of(make, CLASSIC.replace("net(xb)", f"{called}(xb)"), module="score(net(xv), yv)")
    place = Location("train.py", 2, "train", "for xb, yb in train_dl:")
    assert own_names.in_example("model.train()", process, place) == own


def test_a_clip_follows_an_unscaling(make) -> None:
    own = own_names.in_example(CLIP, process_of(make, SCALED), None).splitlines()
    assert own[1] == "scaler.unscale_(opt)"
    assert own[2].startswith("torch.nn.utils.clip_grad_norm_(net.parameters()")


def test_an_accelerator_clips_what_it_scales_and_accumulates(make) -> None:
    """Its optimizer steps in every micro-batch, and passes over those that are not the last."""
    own = own_names.in_example(CLIP, process_of(make, ACCELERATED), None).splitlines()
    guarded = ["if accelerator.sync_gradients:", "    accelerator.clip_grad_norm_(net.parameters(), max_norm=1.0)"]
    assert own == ["accelerator.backward(cost)", *guarded, "opt.step()"]
    named = own_names.in_example(f"norm = {CLIP.splitlines()[1]}", process_of(make, ACCELERATED), None)
    assert named == "norm = accelerator.clip_grad_norm_(net.parameters(), max_norm=1.0)"
    fabric = CLASSIC.replace("cost.backward()", "fabric.backward(cost)")
    assert "fabric.clip" not in own_names.in_example(CLIP, process_of(make, fabric), None)


def test_strings_prose_and_keywords_stay(make) -> None:
    code = 'torch.save({"model": model.state_dict()}, path)  # model: the one that trains\nf(model=model)'
    own = 'torch.save({"model": net.state_dict()}, path)  # model: the one that trains\nf(model=net)'
    assert own_names.in_example(code, process_of(make, CLASSIC), None) == own


def test_comments_and_fields_of_strings_that_are_code_change(make) -> None:
    code = 'print(f"the loss is {loss.item()}")  # right after optimizer.step()'
    own = 'print(f"the loss is {cost.item()}")  # right after opt.step()'
    assert own_names.in_example(code, process_of(make, CLASSIC), None) == own


def test_what_a_program_calls_in_two_ways_stays(make) -> None:
    process = process_of(make, CLASSIC, optimizer="opt = SGD([*trunk.parameters(), *head.parameters()])")
    assert own_names.in_example("model.train()", process, None) == "model.train()"


def test_the_place_tells_which_of_two_optimizers(make) -> None:
    rows = [site(n, "step", n, f"opt_{n}.step()", "train", f"opt_{n}.step()") for n in (1, 2)]
    process = make.process(sites=rows)
    assert own_names.in_example("optimizer.step()", process, None) == "optimizer.step()"
    place = Location("train.py", 2, "train", "opt_2.step()")
    assert own_names.in_example("optimizer.step()", process, place) == "opt_2.step()"


def test_the_place_tells_whose_states_are_loaded(make) -> None:
    place = Location("train.py", 9, "main", "clf.load_state_dict(torch.load(path), strict=False)")
    code = "result = model.load_state_dict(state, strict=False)"
    own = own_names.in_example(code, process_of(make, CLASSIC), place)
    assert own == "result = clf.load_state_dict(state, strict=False)"


def test_nothing_is_assigned_to_self(make) -> None:
    loop = CLASSIC.replace("net(", "self(")
    process = process_of(make, loop, optimizer="return torch.optim.Adam(self.parameters(), lr=1e-3)")
    assert own_names.in_example("model.eval()", process, None) == "self.eval()"
    assert own_names.in_example("model = wrap(model)", process, None) == "model = wrap(model)"


@pytest.mark.parametrize(
    ("line", "code", "own"),
    [
        ("trainer.train()", CLIP.split("\n")[1], "trainer.args.max_grad_norm = 1.0  # before it trains"),
        (
            "trainer.train()",
            "optimizer = torch.optim.AdamW(model.parameters(), lr=2e-05)",
            "trainer.args.learning_rate = 2e-05  # before it trains",
        ),
        ("trainer.fit(model, loader)", CLIP.split("\n")[1], "trainer.gradient_clip_val = 1.0  # before fit"),
        (
            "trainer.fit(model, loader)",
            CLIP.split("\n")[1] + "\nreturn torch.optim.SGD(self.parameters(), lr=2e-06)",
            "trainer.gradient_clip_val = 1.0  # before fit\nreturn torch.optim.SGD(self.parameters(), lr=2e-06)",
        ),
        (
            "trainer.fit(model, loader)",
            CLIP.split("\n", 1)[1],
            "trainer.gradient_clip_val = 1.0  # before fit",
        ),
    ],
)
def test_a_trainer_is_given_its_own_settings(make, line, code, own) -> None:
    process = make.process(sites=[site(1, "step", 3, line, "main", line)])
    assert own_names.in_example(code, process, None) == own


@pytest.mark.parametrize(
    ("line", "callback"),
    [("trainer.train()", "EarlyStoppingCallback("), ("trainer.fit(model, loader)", "EarlyStopping("), ("", "")],
)
def test_a_trainer_stops_by_its_callbacks(make, line: str, callback: str) -> None:
    process = make.process(sites=[site(1, "step", 3, line or "optimizer.step()", "main", line or "optimizer.step()")])
    own = own_names.in_example(trainer_examples.STOP_EARLY, process, None)
    assert callback in own if callback else own == trainer_examples.STOP_EARLY


@pytest.mark.parametrize(
    ("role", "line", "where"),
    [
        ("step", "trainer.fit(net, datamodule=data)", "above trainer.fit(...)"),
        ("step", "trainer.train()", "above trainer.train(...)"),
        ("loader", "engine.run(train, max_epochs=3)", "above engine.run(...)"),
        ("loader", "engine.run(train)", "above the loop over epochs"),  # once for each epoch, perhaps
        ("step", "optimizer.step()", "above the loop over epochs"),
    ],
)
@pytest.mark.parametrize("own_loop", [False, True])
def test_a_loop_over_epochs_that_no_line_of_the_script_is(make, role: str, line: str, where: str, own_loop) -> None:
    """Words as well as examples name the call that goes through the epochs, where the script has no such loop."""
    sites = [{"site": 1, "role": role, "line": 80, "source": line}]
    sites += [{"site": 2, "role": "epochs", "line": 70, "source": "for epoch in range(9):"}] * own_loop
    process = make.process(sites=sites)
    where = "above the loop over epochs" if own_loop else where
    said = "torch.manual_seed(0)  # once, above the loop over epochs, and no longer on line 9"
    assert where in own_names.in_example(said, process, None)
    told = where.replace("loop over epochs", "epoch loop")
    words = trainer_examples.above_epochs("Run line 9 once, above the epoch loop.", process)
    assert words == f"Run line 9 once, {told}."


@pytest.mark.parametrize(
    ("lines", "stops"),
    [
        (
            ["engine.run(train_loader, max_epochs=20)", "metrics = tester.run(valid_loader).metrics"],
            "tester.add_event_",
        ),
        (["trainer.run(train_loader, max_epochs=cfg.epochs)", "for x, y in valid_loader:"], "evaluator.add_event_"),
        (["job.run(train_loader)"], None),  # any class has such a method
    ],
)
def test_engines_of_ignite_stop_early_by_a_handler(make, lines: list[str], stops: str | None) -> None:
    sites = [{"site": at, "role": "loader", "line": 80 + at, "source": line} for at, line in enumerate(lines)]
    code = trainer_examples.in_example(trainer_examples.STOP_EARLY, make.process(sites=sites))
    assert (f"\n{stops}" in code) if stops else code == trainer_examples.STOP_EARLY


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "trainer.fit(model)",
            "def on_after_backward(self):  # of the LightningModule\n    print([n for n, p in self.",
        ),
        ("trainer.train()", "model=None, **kwargs):\n        print([n for n, p in model.named_parameters()"),
        ("optimizer.step()", "loss.backward()\nprint("),
    ],
)
def test_gradients_are_looked_at_where_a_trainer_has_them(make, line: str, code: str) -> None:
    site = {"site": 1, "role": "step", "file": "a.py", "line": 3, "function": "main", "source": line}
    process = make.process(make.steps() | {"grads_none": [8] * 400}, sites=[site])
    assert code in make.check("zero-gradients", process)[2].fix_code


@pytest.mark.parametrize("role", ["step", "backward"])
@pytest.mark.parametrize(
    ("line", "setting"),
    [
        ("tuner.train()", "args.gradient_accumulation_steps *= 2"),
        ("pl_trainer.fit(model)", "pl_trainer.accumulate_grad_batches = 2"),
        ("optimizer.step()", "optimizer.zero_grad()"),
    ],
)
def test_a_trainer_accumulates_by_its_settings(make, role: str, line: str, setting: str) -> None:
    """Also where memory ran out before the first step."""
    site = {"site": 1, "role": role, "file": "a.py", "line": 3, "function": "main", "source": line}
    assert setting in own_names.in_example(trainer_examples.HALVED, make.process(sites=[site]), None)


def test_a_norm_that_is_to_raise_is_not_asked_of_accelerate(make) -> None:
    code = "torch.nn.utils.clip_grad_norm_(\n    model.parameters(), 1e30, error_if_nonfinite=True\n)"
    process = make.process(
        sites=[site(1, "backward", 3, "accelerator.backward(loss)", "main", "accelerator.backward(loss)")]
    )
    assert "accelerator.clip" not in own_names.in_example(code, process, None)


def test_a_line_of_the_program_keeps_its_own_names(make) -> None:
    """Where the place itself speaks of inputs, they are not the batch of the loop in another function."""
    process = process_of(make, CLASSIC)
    code = "layers = [nn.Linear(inputs, width), nn.GELU()]"
    place = Location("train.py", 300, "network", "layers = [nn.Linear(inputs, width), nn.Sigmoid()]")
    assert own_names.in_example(code, process, place) == code
    assert own_names.in_example("probe(inputs)", process, None) == "probe(xb)"
    block = "def block(inputs, outputs):\n    return nn.Sequential(\n        nn.Conv2d(inputs, outputs, 3),\n    )"
    made = {"site": 99, "role": "module", "file": "train.py", "line": 302, "function": "block", "excerpt_line": 300}
    made |= {"source": "nn.Conv2d(inputs, outputs, 3),", "excerpt": block}
    process = make.process(sites=[*process.sites.records(), made])
    place = Location("train.py", 301, "block", "return nn.Sequential(")
    code = "return nn.Sequential(nn.Conv2d(inputs, outputs, 3))"
    assert own_names.in_example(code, process, place) == code, "a statement on several lines"


@pytest.mark.parametrize(
    ("made", "own"),
    [
        ("self.net = nn.Sequential(nn.Linear(2, 8))", "probe(net)"),  # layers of the model: another class's attribute
        ("self.net = net", "probe(self.net)"),
        ("self.net, self.rate = net, rate", "probe(self.net)"),
        ("self.net: nn.Module = DistributedDataParallel(net)", "probe(self.net)"),
        ("return self.net.eval()", "probe(self.net)"),
    ],
)
def test_an_attribute_of_another_class_is_not_the_model(make, made: str, own: str) -> None:
    process = process_of(make, CLASSIC, module=made)
    place = Location("train.py", 300, "update", "mine.lerp_(theirs, 1 - self.decay)")
    rows = [*process.sites.records(), site(300, "average", 300, place.source, "update", place.source)]
    assert own_names.in_example("probe(model)", make.process(sites=rows), place) == own


SHARED = "target = copy.deepcopy(model)\ntarget.load_state_dict(model.state_dict())"


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("target.load_state_dict(net.state_dict())", "target.load_state_dict(net.state_dict())"),
        ("target.load_state_dict(target.state_dict())", "target.load_state_dict(net.state_dict())"),  # the optimizer's
        ("target.load_state_dict(kept)", "target.load_state_dict(model.state_dict())"),  # not one name for two things
        ("net.load_state_dict(kept)", "target.load_state_dict(net.state_dict())"),
    ],
)
def test_two_things_keep_two_names(make, line: str, own: str) -> None:
    location = Location("train.py", 90, "main", line)
    assert own_names.in_example(SHARED, process_of(make, CLASSIC), location).splitlines()[1] == own


def test_the_loader_of_the_validation_is_none_that_trains(make) -> None:
    """A generator in another function goes through the training loader; the loop over epochs validates by itself."""
    loop = "for epoch in range(3):\n    for xb, yb in val_dl:\n        cost = mse(net(xb), yb)\n    cost.backward()"
    rows = [*process_of(make, loop).sites.records()]
    loader = site(90, "loader", 90, "for xb, yb in source:", "noisy", "for xb, yb in source:")
    loaders = [{"loader": 0, "site": 90}, {"loader": 1, "site": next(r["site"] for r in rows if r["role"] == "loader")}]
    made = {"dataloader": "val_dl = DataLoader(held_out)"}
    steps = make.steps() | {"loader": [0] * 400}
    sites = [*process_of(make, loop, **made).sites.records(), loader]
    process = make.process(steps, sites=sites, loaders=loaders)
    code = "for batch in loader:\n    train_step(batch)\nfor batch in val_loader:\n    pass"
    assert own_names.in_example(code, process, None).splitlines()[::2] == [
        "for batch in source:",
        "for batch in val_dl:",
    ]


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("collate = DataCollatorForLanguageModeling(tok, mlm=False)", "tok"),
        ("trainer = Trainer(model=net, processing_class=tok)", "tok"),
        ("self.tok.pad_token = self.tok.eos_token", "self.tok"),
        ("net.config.pad_token_id = tok.eos_token_id", "tok"),
        ("tok = AutoTokenizer.from_pretrained(name)", "tok"),
        ("a.pad_token = b.eos_token", "tokenizer"),  # which of the two is not known
        ("def tokenizer(): return build()", "tokenizer"),
    ],
)
def test_the_tokenizer_goes_by_its_name(make, line: str, own: str) -> None:
    """The usual one may be a function of the script's that makes it."""
    process = process_of(make, CLASSIC, data=line)
    code = own_names.in_example('tokenizer.add_special_tokens({"pad_token": "<pad>"})', process, None)
    assert code == f'{own}.add_special_tokens({{"pad_token": "<pad>"}})'


@pytest.mark.parametrize(
    ("function", "made", "called", "whole"),
    [
        ("main", "opt = Adam(model.encoder.parameters())", "loss = f(model(x), y)", "model"),
        ("main", "opt = Adam(net.encoder.parameters())", "loss = f(net(x), y)", "net"),
        ("main", "opt = Adam(state.net.parameters())", "loss = f(state.net(x), y)", "state.net"),  # nothing calls state
        ("Net.configure_optimizers", "opt = Adam(self.encoder.parameters())", "loss = f(self(x), y)", "self"),
        ("configure_optimizers", "opt = Adam(", "loss = f(self(x), y)", "self"),
    ],
)
def test_what_no_optimizer_holds_is_in_none_of_the_parts_that_it_was_given(
    make: Any, function: str, made: str, called: str, whole: str
) -> None:
    process = make.process(
        sites=[site(1, "optimizer", 3, made, function, made), site(2, "loss", 9, called, "step", called)]
    )
    code = "group = [p for p in model.parameters() if id(p) not in held]"
    assert f"in {whole}.parameters()" in own_names.in_example(code, process, process.site(1))


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("trainer.fit(model, loader)", "# in training_step"),
        ("trainer.train()", "from transformers import TrainerCallback"),
        ("optimizer.step()", "if not torch.isfinite(loss):"),
    ],
)
def test_a_trainer_stops_at_a_loss_that_is_not_finite_without_a_backward_of_the_scripts(make, line, first) -> None:
    """A second backward would raise: the trainer makes its own."""
    process = make.process(sites=[site(1, "step", 3, line, "main", line)])
    code = trainer_examples.in_example(nonfinite_remedy.FIX_CODE, process)
    assert code.startswith(first)
    assert ("loss.backward()" in code) == line.startswith("optimizer")
    assert "error_if_nonfinite=True" in code
    compile(code, "example", "exec")


@pytest.mark.parametrize(
    ("loop", "function", "own"),
    [
        ("for epoch in range(args.epochs):", "train", "for epoch in range(args.epochs):\n    sampler.set_epoch(epoch)"),
        ("for e in range(1, 9):", "train", "for e in range(1, 9):\n    sampler.set_epoch(e)"),
        ("for _ in range(9):", "train", EPOCHS),
        ("for e, x in enumerate(range(9)):", "train", EPOCHS),
        ("for epoch in range(self.epochs):", "fit", EPOCHS),  # of another function
    ],
)
def test_a_loop_over_epochs_is_the_own_one(make: Any, loop: str, function: str, own: str) -> None:
    process = make.process(sites=[site(1, "epochs", 5, loop, function, loop)])
    assert own_names.in_example(EPOCHS, process, Location("train.py", 3, "train", "sampler = None")) == own


ONE_LINE = "o.zero_grad(); l = c(m(x), y); l.backward(); o.step(); s.step()"
BOTH = "o = torch.optim.SGD(m.parameters(), lr=0.1); s = StepLR(o, step_size=10)"
PAIR = "o, s = torch.optim.SGD(m.parameters(), lr=0.1), StepLR(o, step_size=10)"
SCALED_LINE = "scaler.scale(l).backward(); scaler.step(o); scaler.update(); s.step()"


@pytest.mark.parametrize(
    ("line", "optimizer", "scheduler", "own"),
    [
        (ONE_LINE, BOTH, BOTH, "o.step()\ns.step()"),
        (ONE_LINE, "o = torch.optim.SGD(m.parameters(), lr=0.1)", "s = StepLR(o, 10)", "o.step()\ns.step()"),
        (ONE_LINE, "o = torch.optim.SGD(m.parameters(),", "s = StepLR(o,", "o.step()\ns.step()"),
        (ONE_LINE, PAIR, PAIR, "o.step()\ns.step()"),
        (ONE_LINE, "o = make(m)", "s = StepLR(o, 10) if late else None", "o.step()\ns.step()"),
        ("s.step(); o.step()", BOTH, BOTH, "o.step()\ns.step()"),
        ("o.step(); s.step(epoch + i / n)", BOTH, BOTH, "o.step()\ns.step()"),
        ("o.step(); schedulers[0].step()", BOTH, BOTH, "o.step()\nscheduler.step()"),
        (SCALED_LINE, BOTH, BOTH, "scaler.step(o)\nscaler.update()\ns.step()"),
        (ONE_LINE, "return SGD(m.parameters())", "return StepLR(o, 10)", "optimizer.step()\nscheduler.step()"),
    ],
)
def test_a_line_of_several_calls_names_each_by_what_made_it(make, line, optimizer, scheduler, own) -> None:
    """Optimizer and scheduler step in one line: the example of one is never given the other's name."""
    steps = [site(n, role, 4, line, "train", line) for n, role in enumerate(("backward", "step", "schedule"))]
    steps = steps if "backward" in line else steps[1:]
    first = 3 if optimizer == scheduler else 2
    made = [site(8, "optimizer", first, optimizer, "main", ""), site(9, "scheduler", 3, scheduler, "main", "")]
    code = own_names.in_example("optimizer.step()\nscheduler.step()", make.process(sites=[*steps, *made]), None)
    assert code == own


def test_two_losses_or_loaders_of_one_line_are_neither(make) -> None:
    line = "first.backward(); second.backward()"
    process = make.process(sites=[site(1, "backward", 1, line, "train", line)])
    assert own_names.in_example("loss.backward()", process, None) == "loss.backward()"
    line = "a=DataLoader(train_set, batch_size=8); b=DataLoader(held_out, batch_size=8)"
    both = [site(1, "dataloader", 1, line, "main", line), site(2, "loader", 2, "for x, y in a:", "main", "")]
    process = make.process(sites=both)
    own = own_names.in_example("loader = DataLoader(dataset, shuffle=True)", process, Location("train.py", 1, "", line))
    assert own in ("loader = DataLoader(dataset, shuffle=True)", "a = DataLoader(train_set, shuffle=True)")


def test_a_loss_beside_its_backward_is_not_taken_over_with_it(make) -> None:
    loop = CLASSIC.replace("        cost.backward()\n", "").replace(
        "cost = mse(out, yb)", "cost = mse(net(xb), yb); cost.backward()"
    )
    own = own_names.in_example("loss = criterion(model(x), y)\nloss.backward()", process_of(make, loop), None)
    assert own.count("backward") == 1
