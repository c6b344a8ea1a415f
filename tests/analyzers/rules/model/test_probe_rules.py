"""samples-mixed and nondeterministic-step: what they fire on, and models that only look so."""

from __future__ import annotations

from typing import Any

MIXED = "samples-mixed"
REPEATED = "nondeterministic-step"


def mixed(make: Any, **more: Any) -> Any:
    row = {
        "model": 0, "samples": 16, "along": 0, "shape": "16x12x6", "loader": True, "others": 11, "by_position": 1,
        "same_others": True, "repeats": True, "squares": False, "halves": True, "along_samples": None,
        "along_others": 1, "module": "reader", "kind": "Reader", **more,
    }  # fmt: skip
    return make.process(more={"mixings": [row | {"step": 1}, row | {"step": 4}]})


def replayed(make: Any, sites: Any = (), **more: Any) -> Any:
    row = {"model": 0, "outputs": 0.0, "gradients": 0.0, "deterministic": False, "device": "cpu", **more}
    return make.process(sites=list(sites), more={"replays": [row | {"step": 1}, row | {"step": 4}]})


def test_memory_that_was_read_in_another_order(make: Any) -> None:
    status, _, finding = make.check(MIXED, mixed(make))
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "likely")
    assert "11 other samples" in finding.title
    assert "reader (Reader)" in finding.summary


def test_a_layer_that_takes_samples_for_positions(make: Any) -> None:
    wrong = {"along_samples": "mix.0:MultiheadAttention mix:TransformerEncoderLayer", "along_others": 0}
    status, _, finding = make.check(MIXED, mixed(make, others=15, by_position=15, **wrong))
    assert status == "fired"
    assert "batch_first=True" in finding.fix
    also = make.check(MIXED, mixed(make, others=15, by_position=15, **(wrong | {"along_others": 1})))
    assert also[0] == "passed", "attention over the samples beside one over the positions"


def test_a_table_of_positions_tells_samples_from_positions_where_no_loader_does(make: Any) -> None:
    wrong = {"along_samples": "mix:MultiheadAttention", "along_others": 0, "others": 15, "by_position": 15}
    assert make.check(MIXED, mixed(make, loader=False, **wrong))[0] == "passed", "the first may be that of positions"
    assert make.check(MIXED, mixed(make, loader=False, position_table=True))[0] == "passed", "attention does not mix"
    site = {"site": 70, "role": "module", "file": "m.py", "line": 12, "function": "__init__"}
    site |= {"source": "self.mix = nn.MultiheadAttention(width, 4)", "excerpt_line": 12}
    site |= {"excerpt": f"        {site['source']}"}
    rows = list(mixed(make, loader=False, position_table=True, **wrong).tables["mixings"].records())
    made = [{"model": 0, "module": "mix", "made_at": 70}]
    finding = make.check(MIXED, make.process(sites=[site], more={"mixings": rows, "modules": made}))[2]
    assert "table of positions lies along the other dimension" in finding.summary
    assert "positions of one sample do not see each other" in finding.summary
    assert (finding.location.line, finding.diff.added) == (12, [f"{site['excerpt'][:-1]}, batch_first=True)"])


def test_samples_that_meet_on_purpose_or_not_at_all(make: Any) -> None:
    assert make.check(MIXED, mixed(make, others=0, by_position=None, halves=None))[0] == "passed"
    assert make.check(MIXED, mixed(make, others=15, by_position=15))[0] == "passed", "attention over the batch"
    assert make.check(MIXED, mixed(make, others=15, by_position=0))[0] == "passed", "over its last positions"
    assert make.check(MIXED, mixed(make, squares=True))[0] == "passed", "a contrastive head"
    assert make.check(MIXED, mixed(make, same_others=False))[0] == "passed", "mixup"
    assert make.check(MIXED, mixed(make, halves=False))[0] == "passed", "a fixed graph"
    assert make.check(MIXED, mixed(make, loader=False))[0] == "passed", "steps of one series"
    assert make.check(MIXED, mixed(make, repeats=False))[0] == "passed", "noise of its own"


def test_the_line_that_draws_from_a_generator_of_its_own(make: Any) -> None:
    text = "class Dice(Module):\n    def forward(self, x):\n{}        return x * (noise > 0)\n\n\ndef main():\n    pass"
    for drawn, line in (
        ("        noise = torch.rand(3, generator=fresh)\n", 12),
        ("        noise = torch.rand(3, generator=None)\n", 11),
        ("        noise = torch.rand(3)\n", 11),
        ("        noise = torch.rand(3, generator=a)\n        noise += torch.rand(3, generator=b)\n", 11),
    ):
        row = {"site": 60, "role": "module-forward", "file": "m.py", "line": 11, "function": "forward"}
        row |= {"source": "def forward(self, x):", "excerpt": text.format(drawn), "excerpt_line": 10}
        process = replayed(make, [row], outputs=0.3, gradients=0.1, module="dice", kind="Dice", site=60)
        finding = make.check(REPEATED, process)[2]
        assert finding.location.line == line
        assert ("self.generator" in finding.fix_code) == (line == 12)


def test_a_step_that_does_not_repeat(make: Any) -> None:
    status, _, finding = make.check(REPEATED, replayed(make, outputs=0.3, gradients=0.1, module="dice", kind="Dice"))
    assert (status, finding.severity, finding.confidence) == ("fired", "info", "likely")
    assert "dice (Dice)" in finding.summary
    status, _, finding = make.check(REPEATED, replayed(make, gradients=1e-7, deterministic=True))
    assert status == "fired"
    assert "use_deterministic_algorithms" in finding.fix


def test_steps_that_repeat_or_differ_by_rounding(make: Any) -> None:
    assert make.check(REPEATED, replayed(make))[0] == "passed"
    atomics = make.check(REPEATED, replayed(make, gradients=1e-7, device="cuda"))
    assert atomics[0] == "passed"
    assert "nobody asked for determinism" in atomics[1]


def test_without_a_probe(make: Any) -> None:
    for rule in (MIXED, REPEATED):
        assert make.check(rule, make.process())[0] == "skipped"
    failed = {"model": 0, "step": 1, "failed": "the model is a scripted one"}
    status, reason, *_ = make.check(MIXED, make.process(more={"mixings": [failed]}))
    assert status == "skipped"
    assert "scripted" in reason
    assert make.check(REPEATED, make.process(more={"replays": [failed]}))[0] == "skipped"
