"""Where a finding points: the line that is to be another one, not the one at which the fault was seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tracelyze.analyzers import context
from tracelyze.analyzers.rules.checkpoints.checkpoint_mismatch import named_parameters
from tracelyze.analyzers.rules.checkpoints.snapshot_aliased import kept_copies
from tracelyze.analyzers.rules.checkpoints.snapshot_aliased.rule import RULE
from tracelyze.analyzers.rules.data.duplicated_batches import divided_streams
from tracelyze.analyzers.rules.data.train_validation_overlap import copies
from tracelyze.analyzers.rules.distributed.uneven_batches import own_data
from tracelyze.analyzers.rules.updates.learning_rate_schedule import units
from tracelyze.analyzers.script.candidates import preparing
from tracelyze.analyzers.script.editing.optimizers import returned
from tracelyze.diagnosis import Finding


def process_of(make: Any, text: str, *noted: tuple[str, str, str]) -> Any:
    """A run of a script of which all lines were recorded; of each noted line a role, its text and its function."""
    lines = text.strip("\n").split("\n")
    rows = []
    for number, (role, source, function) in enumerate(noted):
        at = next(at for at, line in enumerate(lines) if line.strip() == source)
        row = {"site": number, "role": role, "file": "t.py", "line": at + 1, "function": function, "source": source}
        rows.append(row | {"excerpt": "\n".join(lines), "excerpt_line": 1})
    return make.process(sites=rows)


STREAM = """
    def __iter__(self):
        names = sorted(self.names)
        {loop}
            for row in read(name):
                yield row
"""


@pytest.mark.parametrize(
    ("loop", "divided"),
    [
        ("for name in names:", "for name in itertools.islice(names, first, None, every):"),
        ("for i, name in enumerate(names):", "for i, name in itertools.islice(enumerate(names), first, None, every):"),
        ("for _ in range(self.rounds):", None),  # which may draw the same samples in each worker
        ("for name in itertools.cycle(names):", None),
    ],
)
def test_a_stream_is_divided_in_its_own_loop(make: Any, loop: str, divided: str | None) -> None:
    process = process_of(
        make,
        STREAM.format(loop=loop),
        ("stream-loop", loop, "__iter__"),
        ("dataset", "def __iter__(self):", "__iter__"),
    )
    found = divided_streams.by_the_loop(process, process.site(1))
    assert (found is None) == (divided is None)
    if found is not None:
        assert found.line.line == 3
        assert found.code.endswith(f"worker else (0, 1)\n{divided}")
    assert divided_streams.by_the_loop(process, None) is None


MADE = "plan = OneCycleLR(opt, 0.1, total_steps=self.total)"
CONFIGURE = f"""
    def configure_optimizers(self):
        opt = AdamW(self.parameters())
        {MADE}
        {{given}}
"""


@pytest.mark.parametrize(
    ("given", "edited"),
    [
        (
            "return [opt], [plan]",
            'return {"optimizer": opt, "lr_scheduler": {"scheduler": plan, "interval": "step"}}',
        ),
        (
            'return {"optimizer": opt, "lr_scheduler": plan, "interval": "step"}',  # at the wrong depth
            'return {"optimizer": opt, "lr_scheduler": {"scheduler": plan, "interval": "step"}}',
        ),
        (
            'return {"optimizer": opt, "lr_scheduler": {"scheduler": plan, "name": "rate"}}',
            'return {"optimizer": opt, "lr_scheduler": {"scheduler": plan, "name": "rate", "interval": "step"}}',
        ),
        ("return [opt, self.other], [plan]", ""),
        ("return self.pair(opt, plan)", ""),
    ],
)
def test_what_configure_optimizers_returns_says_when_a_scheduler_steps(make: Any, given: str, edited: str) -> None:
    process = process_of(make, CONFIGURE.format(given=given), ("scheduler", MADE, "configure_optimizers"))
    found = returned.with_interval(process, process.site(0), "step")
    assert found is not None
    assert (found.line.line, found.code) == (4, edited)
    assert (found.diff is not None) == bool(edited)
    told = returned.with_interval(process, process.site(0), "")
    assert told is not None
    assert (told.code, told.diff) == ("", None)


def test_a_scheduler_that_the_script_steps_itself_stays_where_it_is_made(make: Any) -> None:
    """`schedule`: the line of the script that makes the scheduler step; a framework makes both in one line."""
    text = CONFIGURE.format(given="return [opt], [plan]") + "\n    def fit(self):\n        a.step()\n        b.step()\n"
    noted = ("scheduler", MADE, "configure_optimizers"), ("step", "a.step()", "fit"), ("schedule", "b.step()", "fit")
    for stepped, line in ((1, 4), (2, 3)):
        process = process_of(make, text, *noted)
        row = {"scheduler": 0, "optimizer": 0, "name": "OneCycleLR", "steps": 4, "horizon": 400, "made_at": 0}
        row |= {"site": stepped, "base_lr": 0.1, "highest_lr": 0.01, "lowest_lr": 0.004, "inner": False, "early": 0}
        steps = make.steps() | {"lr": [0.004 + 1e-5 * at for at in range(400)]}
        more = {"schedules": [row], "sites": list(process.sites.records())}
        process = make.process(steps, sites=more.pop("sites"), more=more)
        _, reason, finding = make.check("learning-rate-schedule", process)
        assert finding is not None, reason
        assert finding.location.line == line
        assert (finding.diff is not None) == (line == 4)
        assert ("once per epoch unless" in finding.fix) == (line == 4)


def test_only_examples_of_units_say_how_often_a_scheduler_steps() -> None:
    assert [units.interval(one) for one in (units.PER_BATCH, units.PER_EPOCH, units.EITHER)] == ["step", "epoch", ""]


@pytest.mark.parametrize(
    ("line", "deals"),
    [
        ("mine = [load(i) for i in range(rank, shards, world)]", True),
        ("mine = files[dist.get_rank()::dist.get_world_size()]", True),
        ("for part in itertools.islice(parts, rank, None, world):", True),
        ("for i in range(rank + 1):", False),
        ("rows = rows[rank * each:(rank + 1) * each]", False),
    ],
)
def test_the_line_that_deals_out_parts_by_rank(make: Any, line: str, deals: bool) -> None:
    process = process_of(make, f"def main():\n    {line}\n    train()", ("step", "train()", "main"))
    found = own_data.dealt(process, None)
    assert (found.line if found else None) == (2 if deals else None)


@pytest.mark.parametrize(
    ("line", "above"),
    [
        ("x, y = even_out(x, y, rng)", True),
        ("x, y = balance_classes(x, y)", True),
        ("x, y = make_rows(9000)", False),  # which draws, but is given no data
        ("x = scaled(x)", False),  # which does not draw
    ],
)
def test_data_that_are_copied_before_they_are_split(make: Any, line: str, above: bool) -> None:
    text = f"""
def even_out(x, y, rng):
    more = rng.choice(rare, size=missing)
    return x[more]
def make_rows(count):
    kinds = rng.choice(6, count)
    return kinds
def main():
    {line}
    train, held = random_split(full, [0.8, 0.2])
"""
    process = process_of(
        make,
        text,
        ("repeats", "more = rng.choice(rare, size=missing)", "even_out"),
        ("repeats", "kinds = rng.choice(6, count)", "make_rows"),
        ("split", "train, held = random_split(full, [0.8, 0.2])", "main"),
    )
    found = copies.made_above(process, process.site(2))
    assert (found.line if found else None) == (8 if above else None)


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ('s = {"net": dict(net.named_parameters()), "at": at}', 's = {"net": net.state_dict(), "at": at}'),
        ("s = {n: p for n, p in net.named_parameters()}", "s = {n: p for n, p in net.state_dict().items()}"),
        ("some = {n: p for n, p in net.named_parameters() if p.requires_grad}", None),  # adapters
        ("decayed = [p for n, p in net.named_parameters()]", None),
    ],
)  # fmt: skip
def test_parameters_that_are_saved_without_buffers(make: Any, line: str, whole: str | None) -> None:
    text = f"def save(net, path):\n    {line}\n    torch.save(state, path)\n"
    process = process_of(make, text, ("parameters-text", line, "save"), ("save", "torch.save(state, path)", "save"))
    found = named_parameters.line(process, process.site(1))
    assert (found.code if found else None) == whole
    assert found is None or (found.line.line == 2 and found.diff is not None)


@pytest.mark.parametrize(
    ("evaluated", "line"),
    [("x = scaled(rows)", 3), ("held = scaled(held_rows)", None), ("val = scaled(val_rows)", 3)],
)
def test_a_division_that_prepares_what_is_evaluated(make: Any, evaluated: str, line: int | None) -> None:
    where = "measure" if evaluated.startswith("x") else "main"
    text = f"""
def scaled(rows):
    spread = rows.std(dim=1)
    return rows / spread
def {where}(rows):
    {evaluated}
    answer = model(x)
"""
    process = process_of(
        make,
        text,
        ("singular", "spread = rows.std(dim=1)", "scaled"),
        ("singular", "return rows / spread", "scaled"),
        *[("forward", "answer = model(x)", where)] * (where == "measure"),
        *[("module", "answer = model(x)", where)] * (where == "main"),
    )
    found = preparing.for_validation(process)
    assert (found.line if found else None) == line


def test_a_finding_stands_at_the_line_of_its_statement_that_its_edit_changes(make) -> None:
    """A statement over several lines is recorded at one of them, and the edit may change another."""
    text = "best = {\n    name: tensor.detach().cpu()\n    for name, tensor in model.state_dict().items()\n}"
    row = {"site": 1, "role": "state_dict", "file": "t.py", "line": 3, "function": "keep", "excerpt": text}
    row |= {"excerpt_line": 1, "source": text.split("\n")[2].strip()}
    process = make.process(sites=[row])
    place, diff = process.site(1), kept_copies.edit(process, process.site(1))
    found = Finding("snapshot-aliased", "critical", "certain", "t", "s", "f", location=place, diff=diff)
    completed = context.completed(found, process, RULE)
    assert completed.location
    assert (completed.location.line, completed.location.source) == (2, "name: tensor.detach().cpu()")
    above = replace(found, location=replace(place, line=40))
    assert context.completed(above, process, RULE).location.line == 40, "another statement"
