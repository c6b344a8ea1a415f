"""Lines that keep a tensor with its graph, as far as the recorded text of the loop shows them."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.recorded.run import Optimization
from tracelyze.analyzers.script import kept_tensors
from tracelyze.analyzers.script.editing.storing import handed_over

LOOP = """\
for x, y in loader:
    out = model(x)
    aux = penalty(out)
    loss = criterion(out, y) + 0.1 * aux
    total += loss.item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seen += len(x)"""


def loop_of(make: Any, *last: str, loop: str = LOOP) -> Optimization:
    """A training whose loop ends with these lines."""
    lines = [*loop.split("\n"), *(f"    {line}" for line in last)]
    at = next(index for index, line in enumerate(lines) if "backward" in line)
    site = {
        "site": 1,
        "role": "backward",
        "file": "train.py",
        "line": at + 1,
        "function": "<module>",
        "source": lines[at].strip(),
        "excerpt_line": 1,
        "excerpt": "\n".join(lines),
    }
    return make.process(sites=[site]).optimizations[0]


def found(make: Any, *last: str, loop: str = LOOP) -> list[tuple[int, str | None]]:
    kept = kept_tensors.lines(loop_of(make, *last, loop=loop))
    return [(one.location.line, one.diff.added[0].strip() if one.diff else None) for one in kept]


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("running += loss", "running += loss.detach()"),
        ("self.losses.append(loss)", "self.losses.append(loss.detach())"),
        ('history.setdefault("aux", []).append(aux)', 'history.setdefault("aux", []).append(aux.detach())'),
        ('history["aux"].append(aux)', 'history["aux"].append(aux.detach())'),
        ("cache[step] = out", "cache[step] = out.detach()"),
        ("outputs.append((out, y))", "outputs.append((out.detach(), y))"),
        ("outputs.append((out * 2, y))", None),
        (
            'outputs.append({"at": epoch, "out": out, "loss": loss, "y": y})',
            'outputs.append({"at": epoch, "out": out.detach(), "loss": loss.detach(), "y": y})',
        ),
        ("outputs.append(dict(out=out, first=x[0]))", "outputs.append(dict(out=out.detach(), first=x[0]))"),
        ('outputs.append({"out": out * 2, "loss": loss})', None),
        ("running += loss * len(x)", "running += (loss * len(x)).detach()"),
        ("running += loss / len(loader)", "running += (loss / len(loader)).detach()"),
        ("running += score(loss) / 2", None),
        ("running += out.size(0) / 2", None),
    ],
)
def test_what_keeps_a_graph(make: Any, line: str, instead: str | None) -> None:
    assert found(make, line) == [(10, instead)]


def test_sizes_and_data_hold_no_graph(make: Any) -> None:
    loop = LOOP.replace(
        "    out = model(x)", "    part = rows[at : at + SIZE]\n    x = part.to(device)\n    out = model(x)"
    )
    loop = "SIZE = 8\n" + loop.replace("+ 0.1 * aux", "/ len(part)")
    assert (
        found(make, "curve.append(total / (len(rows) // SIZE))", "inputs.append(part)", "seen.append(x)", loop=loop)
        == []
    )
    assert [line for line, _ in found(make, "curve.append(out / SIZE)", loop=loop)] == [13]


@pytest.mark.parametrize("block", ["torch.no_grad()", "torch.inference_mode()", "torch.set_grad_enabled(False)"])
def test_a_validation_under_no_grad_keeps_no_graph(make: Any, block: str) -> None:
    valid = [f"with {block}:", "    for x, y in held_out:", "        out = model(x)"]
    last = ["running += aux", *valid, "        total_valid += criterion(out, y) / len(held_out)"]
    assert found(make, *last) == [(10, "running += aux.detach()")]
    assert [line for line, _ in found(make, *last[:1], *last[2:])] == [10, 13], "with a graph, these are kept as well"


def test_a_size_cannot_be_detached(make: Any) -> None:
    assert found(make, "rows = len(out)", "kept.append((loss, rows))")[-1] == (11, None)
    assert found(make, "rows = out.shape[0]", "kept.append((loss, rows))")[-1] == (11, None)


def test_outputs_are_kept_without_a_graph_as_well(make: Any) -> None:
    def said(line: str) -> str:
        optimization = loop_of(make, line)
        return kept_tensors.outputs(optimization, kept_tensors.lines(optimization))

    assert said("kept.append((loss, out))").startswith(" An output takes its own memory")
    assert said("kept.append(loss)") == ""
    assert "empty the list" in said('kept.append({"loss": loss, "out": out})')
    assert said('kept.append({"loss": loss, "epoch": epoch})') == ""
    assert said("running += loss") == ""


def test_what_no_backward_has_emptied_comes_first(make: Any) -> None:
    loop = LOOP.replace("    optimizer.zero_grad()", "    edges = blur(out) - y\n    optimizer.zero_grad()")
    kept = kept_tensors.lines(loop_of(make, "losses.append(loss)", "errors.append(edges)", loop=loop))
    assert [(one.location.source, one.emptied) for one in kept] == [
        ("errors.append(edges)", False),
        ("losses.append(loss)", True),
    ]
    assert kept_tensors.emptied(kept) == " What line 11 keeps is small: backward has freed what that graph had saved."
    assert kept_tensors.emptied(kept[1:]) == "", "all that there is to say"
    running = kept_tensors.lines(loop_of(make, "running += loss"))
    assert [one.emptied for one in running] == [False], "a sum grows by a graph at each step"


@pytest.mark.parametrize(
    "line",
    [
        "running += loss.item()",
        "losses.append(float(loss))",
        "outputs.append(out.detach())",
        "labels.append(y)",
        "count += 1",
        "print(loss)",
        'row["loss"] = value',
    ],
)
def test_what_keeps_none(make: Any, line: str) -> None:
    assert found(make, line) == []


def test_the_loss_itself_may_be_added_up(make: Any) -> None:
    assert found(make, loop=LOOP.replace("    total", "    loss += 0.1 * aux\n    total")) == []


def test_nothing_is_said_of_another_function_or_of_a_framework(make: Any) -> None:
    assert kept_tensors.lines(make.process().optimizations[0]) == []
    assert found(make, "losses.append(loss)", loop=LOOP.replace("loss.backward()", "trainer.backward()")) == []


@pytest.mark.parametrize(
    "lines",
    [
        "losses.append(one)",
        "losses = []\n    losses.append(one)",
        "parts[step] = one",
        "parts.setdefault(0, []).append(one)",
    ],
)
def test_what_the_loss_is_made_of_keeps_its_graph(make: Any, lines: str) -> None:
    """Detached, the terms of a loss would train nothing."""
    name = "parts" if "parts" in lines else "losses"
    loop = LOOP.replace(
        "loss = criterion(out, y) + 0.1 * aux", f"one = criterion(out, y)\n    {lines}\n    loss = sum({name})"
    )
    assert found(make, loop=loop) == []


def test_lines_that_follow_each_other_are_one_edit(make: Any) -> None:
    lines = ["losses.append(loss)", "outputs.append(out)", "pairs.append((2 * out, y))", "auxs.append(aux)"]
    kept = kept_tensors.lines(loop_of(make, *lines))
    edit = kept_tensors.edit(kept)
    assert [one.location.line for one in kept] == [10, 11, 12, 13]
    assert edit is not None
    assert (edit.line, [line.strip() for line in edit.removed]) == (10, lines[:2])
    assert [line.strip() for line in edit.added] == ["losses.append(loss.detach())", "outputs.append(out.detach())"]
    assert kept_tensors.edit(kept[2:]) is None
    assert kept_tensors.edit([]) is None


def test_a_line_of_another_function_is_not_the_loops(make: Any) -> None:
    """The excerpt around a call holds the lines beside it, whosever they are."""
    trainer = (
        "class Trainer:\n    def step(self, loss):\n        loss.backward()\n        self.losses.append(loss)\n" + LOOP
    )
    assert found(make, "seen += 1", loop=trainer) == []
    assert found(make, "losses.append(loss)", loop=trainer) == [(14, "losses.append(loss.detach())")]
    headless = "        self.losses.append(loss)\n" + LOOP
    assert found(make, "seen += 1", loop=headless) == []


def test_appends_that_were_seen_are_named_and_no_others(make: Any) -> None:
    optimization = loop_of(make, "shown.append(loss)", "running += loss")
    line = {"role": "keeps", "file": "meters.py", "function": "update", "source": "self.values.append(value)"}
    sites = [*optimization.process.sites.records(), {"site": 2, "line": 7, **line}]
    kept = kept_tensors.lines(make.process(sites=sites).optimizations[0])
    assert [(one.location.file, one.location.line) for one in kept] == [("train.py", 11), ("meters.py", 7)]
    assert kept[1].diff is None, "a meter is given numbers as well, which cannot be detached"


def test_an_append_that_was_seen_keeps_its_place_in_the_line(make: Any) -> None:
    optimization = loop_of(make, "seen.append(whole)")
    rows = [*optimization.process.sites.records()]
    text = rows[0]["excerpt"].split("\n")
    line = rows[0] | {"role": "keeps", "source": text[-1].strip(), "line": len(text)}
    site = line | {"site": 2}
    (kept,) = kept_tensors.lines(make.process(sites=[*rows, site]).optimizations[0])
    assert kept.diff is not None
    assert (kept.diff.removed, kept.diff.added) == ([text[-1]], ["    seen.append(whole.detach())"])


COUNTED = """\
for epoch in range(4):
    running = 0.0
    n = len(x)
    order = torch.randperm(n)
    for i in range(0, n, size):
        out = model(x[order[i : i + size]])
        loss = criterion(out, y)
        loss.backward()
        running += loss
    average = running / (n // size)"""


def test_a_number_that_the_batches_are_counted_by_holds_no_graph(make: Any) -> None:
    """The average is computed from the running sum and from a number behind the loss: the loss needs neither."""
    assert found(make, loop=COUNTED) == [(9, "running += loss.detach()")]


ROWS = """\
# where no loss is computed through what it holds
self.rows.append(tuple(one.detach() if hasattr(one, "detach") else one for one in (step, value)))"""


@pytest.mark.parametrize(
    ("source", "instead"),
    [
        (
            "self.values[name].append(value)",
            'self.values[name].append(value.detach() if hasattr(value, "detach") else value)',
        ),
        (
            "self.values.setdefault(name, []).append(value)",
            'self.values.setdefault(name, []).append(value.detach() if hasattr(value, "detach") else value)',
        ),
        ("self.last[name] = value", 'self.last[name] = value.detach() if hasattr(value, "detach") else value'),
        ("self.rows.append((step, value))", ROWS),
        ("self.rows.append(value)  # of this epoch", ""),
    ],
)
def test_a_tracker_that_is_given_numbers_too(make: Any, source: str, instead: str) -> None:
    """A number has no detach(): the line of a method that keeps what it is given asks first."""
    there = {"file": "train.py", "line": 90, "function": "add", "source": source, "excerpt": source}
    sites = [{"site": 2, "role": "keeps", "excerpt_line": 90} | there]
    backward = {"role": "backward", "file": "train.py", "line": 7, "function": "main", "source": "loss.backward()"}
    optimization = make.process(sites=[{"site": 1} | backward, *sites]).optimizations[0]
    assert kept_tensors.guarded(optimization, kept_tensors.lines(optimization)) == instead


@pytest.mark.parametrize(
    ("loop", "known"),
    [
        ('out["loss"].backward()\nself.outs.append(out)', True),
        ("out = {'loss': loss}\nself.outs.append(out)", True),
        ("out = [loss, scores]\nself.outs.append(out)", False),
    ],
)
def test_a_dictionary_is_kept_with_detached_entries(make: Any, loop: str, known: bool) -> None:
    place = {"file": "a.py", "function": "main", "excerpt": loop, "excerpt_line": 7}
    backward = {"site": 1, "role": "backward", "line": 7, "source": loop.split("\n", maxsplit=1)[0]} | place
    keeps = {"site": 2, "role": "keeps", "line": 8, "source": "self.outs.append(out)"} | place
    optimization = make.process(sites=[backward, keeps]).optimizations[0]
    instead = kept_tensors.guarded(optimization, kept_tensors.lines(optimization))
    entries = '{key: value.detach() if hasattr(value, "detach") else value for key, value in out.items()}'
    assert instead == (f"self.outs.append({entries})" if known else "")


STEP = """\
    def training_step(self, batch, index):
        loss, logits = self.step(batch)
        {line}
        return loss"""
FREE = '{{key: value.detach() if hasattr(value, "detach") else value for key, value in {}.items()}}'


@pytest.mark.parametrize(
    ("line", "kept", "others"),
    [
        ('self.outs.append({"loss": loss, "n": len(batch)})', FREE.format('{"loss": loss, "n": len(batch)}'), False),
        ("self.outs.append(dict(loss=loss, y=batch[1]))", FREE.format("dict(loss=loss, y=batch[1])"), True),
        (
            "self.outs.append([loss])",
            '[one.detach() if hasattr(one, "detach") else one for one in [loss]]',
            False,
        ),
    ],
)
def test_a_step_of_a_framework_keeps_what_is_written_out_in_the_append(make, line, kept, others) -> None:
    excerpt = STEP.format(line=line)
    backward = {"site": 1, "role": "backward", "file": "a.py", "line": 60, "source": "trainer.fit(net, data)"}
    place = {"file": "a.py", "line": 3, "function": "training_step", "source": line}
    keeps = {"site": 2, "role": "keeps", "excerpt": excerpt, "excerpt_line": 1} | place
    optimization = make.process(sites=[backward | {"function": "main"}, keeps]).optimizations[0]
    stored = kept_tensors.lines(optimization)
    append, *more = kept_tensors.guarded(optimization, stored).split("\n")
    assert append == f"self.outs.append({kept})"
    assert more[1:] == ["self.outs.clear()"] * others, "whole outputs would fill the list without their graphs, too"
    assert ("empty the list" in kept_tensors.outputs(optimization, stored)) is others


METER = """\
    def update(self, err):
        m = err.mean()
        n = len(err)
        count = float(err.sum())
        {line}
        return self.value"""


def meter(make: Any, line: str, function: str = "main", **steps: Any) -> Optimization:
    """A running value that a method keeps with the graphs of all steps before."""
    excerpt = METER.format(line=line)
    backward = {"site": 1, "role": "backward", "file": "a.py", "line": 60, "source": "loss.backward()"}
    keeps = {"site": 2, "role": "keeps", "file": "a.py", "line": 5, "function": "update", "source": line}
    sites = [backward | {"function": function}, keeps | {"excerpt": excerpt, "excerpt_line": 1}]
    return make.process(make.steps() | steps, sites=sites).optimizations[0]


@pytest.mark.parametrize(
    ("line", "edited"),
    [
        (
            "self.value = m if self.value is None else self.decay * self.value + (1 - self.decay) * m",
            "self.value = (m if self.value is None else self.decay * self.value + (1 - self.decay) * m).detach()",
        ),
        ("self.value = 0.9 * self.value + 0.1 * m", "self.value = (0.9 * self.value + 0.1 * m).detach()"),
        ("self.of[k] = 0.9 * self.of[k] + 0.1 * f(err)", "self.of[k] = (0.9 * self.of[k] + 0.1 * f(err)).detach()"),
        ("self.value = 0.9 * self.value + 0.1 * err", None),
        ("self.value = 0.9 * self.value + 0.1 * count", None),
        ("self.values = self.values + [2 * m]", None),
        ("self.value = cell(m, self.value)", None),
    ],
)
def test_a_running_average_is_kept_without_the_steps_before(make: Any, line: str, edited: str | None) -> None:
    optimization = meter(make, line)
    (kept,) = kept_tensors.lines(optimization)
    assert (kept.diff and [one.strip() for one in kept.diff.added]) == (edited and [edited])
    instead = kept_tensors.guarded(optimization, [kept])
    assert instead.startswith(f"{line}\nif torch.is_tensor(self.value):") == (edited is None and "0.9" in line)


def test_an_average_in_the_loop_is_a_tensor_and_a_kept_graph_may_be_needed(make: Any) -> None:
    line = "self.value = 0.9 * self.value + 0.1 * err"
    (inside,) = kept_tensors.lines(meter(make, line, "update"))
    assert inside.diff is not None, "where backward is called, what a loss is made of is a tensor"
    (retained,) = kept_tensors.lines(meter(make, line, graph_retained=[True] * 400))
    assert retained.diff is None


def test_where_graphs_are_retained_the_loss_may_be_computed_from_the_new_average(make: Any) -> None:
    line = "self.value = 0.9 * self.value + 0.1 * m"
    optimization = meter(make, line, graph_retained=[True] * 400)
    instead = kept_tensors.guarded(optimization, kept_tensors.lines(optimization))
    assert instead == f"if torch.is_tensor(self.value):\n    self.value = self.value.detach()\n{line}"


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("self.errors.append(self.error(x, y))", "self.errors.append(self.error(x, y).detach())"),
        ("self.errors.append(error(x, y).item())", ""),
        ("self.errors.append([[error(x, y)], y])", ""),
        ("self.errors.append({'all': [error(x, y)]})", ""),
        ("self.errors.append((error(x, y).detach(), y))", ""),
        ("self.errors.append(self.scale * error(x, y))", ""),
    ],
)
def test_what_a_call_gives_is_kept_without_its_graph(make: Any, line: str, instead: str) -> None:
    optimization = meter(make, line)
    assert kept_tensors.guarded(optimization, kept_tensors.lines(optimization)) == instead


PARTS = (
    "# what a loss is computed through stays as it is; of a tuple of tensors, detach each\n"
    'self.replay.append({}(*(one.detach() if hasattr(one, "detach") else one for one in ({}))))'
)


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("self.replay.append(self.play(eps))", f"{kept_tensors.UNDER_NO_GRAD}\n    self.replay.append(self.play(eps))"),
        ("self.replay.append(Step(o, a, r))", PARTS.format("Step", "o, a, r")),
        ("self.replay.append(kinds.Step(state[0]))", PARTS.format("kinds.Step", "state[0],")),
        ("self.replay.append(Step(o, act(o)))", ""),
        ("self.replay.append(Step(o, action=a))", ""),
    ],
)
def test_what_a_call_gives_may_be_no_tensor_and_hold_some(make: Any, line: str, instead: str) -> None:
    recorded = [*meter(make, line).process.sites.records()]
    inside = [one | {"site": 9, "role": "keeps-parts"} for one in recorded if one["role"] == "keeps"]
    optimization = make.process(make.steps(), sites=[*recorded, *inside]).optimizations[0]
    assert kept_tensors.guarded(optimization, kept_tensors.lines(optimization)) == instead


FILLED = """\
    self.env.reset()
    batch = {"obs": [], "value": []}
    {line}
    return batch"""


@pytest.mark.parametrize(
    ("lines", "number", "edited"),
    [
        ([3], 3, 'batch["value"].append(q.gather(1, a).squeeze(1).detach())'),
        ([3, 9], 5, ""),  # which of them is meant is not known
        ([], 5, ""),
    ],
)
def test_a_line_that_fills_what_another_one_keeps(make: Any, lines: list[int], number: int, edited: str) -> None:
    line = 'batch["value"].append(q.gather(1, a).squeeze(1))'
    recorded = [*meter(make, "self.episodes.append(episode)").process.sites.records()]
    recorded += [one | {"site": 9, "role": "keeps-parts"} for one in recorded if one["role"] == "keeps"]
    text = {"excerpt": FILLED.replace("{line}", line), "excerpt_line": 1, "source": line, "function": "run"}
    inside = {"role": "keeps-inside", "file": "b.py"} | text
    recorded += [inside | {"site": 10 + one, "line": one} for one in lines]
    count = 400
    process = make.process(make.steps() | {"live_graphs": [2 + one for one in range(count)]}, sites=recorded)
    finding = make.check("memory-leak", process)[2]
    assert finding.location.line == number
    assert finding.fix_code.endswith(edited) if edited else "hasattr(episode" not in finding.fix_code
    assert ("keeps a tensor beyond" in finding.summary) == (not lines), finding.summary
    assert ("the lines 3 and 9" in finding.summary) == (len(lines) == 2)


HANDING = """\
for x, y in batches:
    loss = F.mse_loss(model(x), y)
    seen = loss.item()
    gap = F.l1_loss(model(y), y)
    loss.backward()
    {line}"""


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("shown.update(gap)", 65),
        ("shown.update('gap', gap)", 65),
        ("shown.update(gap, other)", None),  # which of both?
        ("shown.update(gap); bar.update(1); losses.update(seen); losses.update(loss.item())", 65),
        ("shown.update(gap.item())", None),
        ("shown.update(gap); losses.update(loss)", None),  # two of them
        ("shown.update(gap); logs.update({'loss': loss})", None),  # perhaps a dictionary's
        ("shown.update(other)", None),  # made elsewhere
    ],
)
def test_the_call_that_hands_a_tensor_to_a_meter(make: Any, line: str, number: int | None) -> None:
    keeps = "self.value = 0.9 * self.value + 0.1 * err"
    rows = list(meter(make, keeps).process.sites.records())
    text = HANDING.format(line=line.replace("; ", "\n    "))
    rows[0] |= {"line": 64, "excerpt": text, "excerpt_line": 60}
    optimization = make.process(sites=rows).optimizations[0]
    found = handed_over.to(optimization, kept_tensors.lines(optimization)[-1].location)
    assert (found.place.line if found else None) == number
    assert found is None or (found.name, found.instead) == ("gap", " Or hand over gap.detach() in line 65.")


@pytest.mark.parametrize(
    ("keeps", "said"),
    [
        ("self.values.append(err)", True),
        ("self.value += float(n) * err.mean()", True),
        ("self.values.append((name, err))", True),
        ("self.values.append(self.drift(err))", False),  # of a model that it is given, perhaps
        ("self.values.append(drift(err))", False),
        ("self.values.append(self.latest())", False),
        ("self.value = 0.9 * self.value + 0.1 * m", False),  # of `m = err.mean()` above
    ],
)
def test_what_a_meter_computes_of_what_it_is_given_comes_from_elsewhere(make: Any, keeps: str, said: bool) -> None:
    rows = list(meter(make, keeps).process.sites.records())
    rows[0] |= {"line": 64, "excerpt": HANDING.format(line="shown.update(gap)"), "excerpt_line": 60}
    optimization = make.process(sites=rows).optimizations[0]
    found = handed_over.to(optimization, kept_tensors.lines(optimization)[-1].location)
    assert (found is not None) == said


@pytest.mark.parametrize(
    ("value", "known"),
    [
        ("F.l1_loss(out, y.detach())", True),  # the graph of `out`
        ("F.l1_loss(out, y.detach()).item()", False),
        ("float(out)", False),
        ("gauge(y.detach(), 3)", False),  # perhaps it computes with weights, perhaps not
    ],
)
def test_a_tensor_of_something_that_is_detached_and_something_that_is_not(make: Any, value: str, known: bool) -> None:
    rows = list(meter(make, "self.values.append(err)").process.sites.records())
    text = HANDING.format(line="shown.update(gap)").replace("loss.item()", "0").replace("seen = 0", "out = model(y)")
    text = text.replace("F.l1_loss(model(y), y)", value)
    rows[0] |= {"line": 64, "excerpt": text, "excerpt_line": 60}
    optimization = make.process(sites=rows).optimizations[0]
    found = handed_over.to(optimization, kept_tensors.lines(optimization)[-1].location)
    assert (found.place.line if found else None) == (65 if known else None)
