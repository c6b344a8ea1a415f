"""partial-seeding: a generator that is used and not seeded, and scripts that seed all or none."""

from __future__ import annotations

from typing import Any

RULE = "partial-seeding"


def seeded(
    make: Any,
    *names: str,
    moved: str = "",
    worker: int | None = None,
    weights: int = 0,
    drawn: dict[str, int] | None = None,
) -> Any:
    events: list[dict[str, Any]] = [{"kind": "seeded", "name": name} for name in names]
    events += [{"kind": "drawn", "name": name, "value": float(steps)} for name, steps in (drawn or {}).items()]
    signals = [{"signal": "seeding", "state": "on"}]
    fetches = [{"loader": 0, "epoch": 0, "worker": worker, "batches": 20, "moved": moved}]
    filled = {"step": 1, "optimizer": 0, "weights": weights, "repeated": 0, "most": 1, "loaded": 0, "overwritten": 0}
    more = {"fetches": fetches, "signals": signals, "initializations": [filled]}
    return make.process(events=events, more=more)


def test_the_line_that_seeds(make: Any) -> None:
    sites = [
        {"site": n, "role": "seed", "file": "train.py", "line": line, "function": "main", "source": source}
        for n, (line, source) in enumerate(
            [(4, "rows = torch.Generator().manual_seed(3)"), (9, "torch.manual_seed(0)"), (12, "torch.manual_seed(1)")]
        )
    ]
    events = [{"kind": "seeded", "name": "torch"}]
    fetches = [{"loader": 0, "epoch": 0, "worker": None, "batches": 20, "moved": "numpy"}]
    more = {"fetches": fetches, "signals": [{"signal": "seeding", "state": "on"}]}
    finding = make.check(RULE, make.process(events=events, sites=sites, more=more))[2]
    assert finding.location.line == 9, "where the other seeds belong, not a generator of its own"


def test_a_generator_that_is_made_and_dropped(make: Any) -> None:
    """It seeds nothing; one that is kept is none of this rule's business."""
    events = [{"kind": "seeded", "name": name} for name in ("torch", "python")]
    fetches = [{"loader": 0, "epoch": 0, "worker": None, "batches": 20, "moved": "numpy"}]
    more = {"fetches": fetches, "signals": [{"signal": "seeding", "state": "on"}]}
    for source, line in (
        ("np.random.default_rng(seed)", 5),
        ("numpy.random.RandomState(seed)", 5),
        ("rng = np.random.default_rng(seed)", 4),
        ("torch.Generator().manual_seed(seed)", 4),  # NumPy's is the one that is missing
    ):
        place = {"role": "seed", "file": "train.py", "function": "seed_all"}
        sites = [place | {"site": 0, "line": 4, "source": "random.seed(seed)"}]
        sites += [place | {"site": 1, "line": 5, "source": source}]
        finding = make.check(RULE, make.process(events=events, sites=sites, more=more))[2]
        assert finding.location.line == line
        assert ("Line 5 makes a generator" in finding.summary) == (line == 5)
        assert finding.title.endswith("while Python's random and torch are")


def test_one_is_seeded_and_another_one_used(make: Any) -> None:
    for moved in ("numpy", "python numpy"):
        status, reason, finding = make.check(RULE, seeded(make, "torch", moved=moved, weights=4))
        assert status == "fired", reason
        assert (finding.severity, finding.confidence) == ("info", "likely")
    assert make.check(RULE, seeded(make, "numpy", weights=4))[0] == "fired"


def test_all_that_are_used_are_seeded_or_none_is(make: Any) -> None:
    assert make.check(RULE, seeded(make, "torch", "numpy", moved="numpy torch", weights=4))[0] == "passed"
    assert make.check(RULE, seeded(make, "torch", weights=4))[0] == "passed", "the others are not used"
    assert make.check(RULE, seeded(make, "torch", moved="numpy", worker=0))[0] == "passed", "torch seeds workers"
    assert make.check(RULE, seeded(make, "torch", moved="own"))[0] == "passed", "a generator of the dataset's own"
    assert make.check(RULE, seeded(make, moved="numpy python", weights=4))[0] == "skipped", "no seed at all"


def test_a_loop_that_cuts_its_own_batches(make: Any) -> None:
    status, reason, finding = make.check(RULE, seeded(make, "torch", drawn={"numpy": 11, "python": 11}, weights=4))
    assert status == "fired", reason
    assert "steps drew from" in finding.summary
    assert make.check(RULE, seeded(make, "torch", "numpy", drawn={"numpy": 11}, weights=4))[0] == "passed"
    assert make.check(RULE, seeded(make, "torch", drawn={"numpy": 2}, weights=4))[0] == "passed", "now and then"
    assert make.check(RULE, seeded(make, drawn={"numpy": 11}, weights=4))[0] == "skipped", "no seed at all"


def test_a_generator_that_may_have_been_seeded_accuses_no_other(make: Any) -> None:
    perhaps = [{"kind": "seeded", "name": "python", "value": 0.0}]
    filled = {"step": 1, "optimizer": 0, "weights": 4, "repeated": 0, "most": 1, "loaded": 0, "overwritten": 0}
    fetches = [{"loader": 0, "epoch": 0, "worker": None, "batches": 20, "moved": "python"}]
    more = {"fetches": fetches, "signals": [{"signal": "seeding", "state": "on"}], "initializations": [filled]}
    assert make.check(RULE, make.process(events=perhaps, more=more))[0] == "skipped"
    assert make.check(RULE, make.process(events=[perhaps[0] | {"value": 1.0}], more=more))[0] == "fired"
