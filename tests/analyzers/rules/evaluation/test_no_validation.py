"""Trainings that are never evaluated, or whose held-out data nobody looks at."""

from __future__ import annotations

import pytest

from tracelyze.diagnosis import Exit


def test_a_long_training_without_evaluation(make) -> None:
    long = make.steps() | {"seconds": [5.0] * 400}
    assert make.check("no-validation", make.process(long, evals={}))[2].severity == "info"
    assert make.check("no-validation", make.process(long))[0] == "passed"
    assert make.check("no-validation", make.process(evals={}))[0] == "passed"  # a demo
    stream = [{"loader": 0, "dataset": "Web", "iterable": True, "length": None}]
    assert make.check("no-validation", make.process(long, evals={}, loaders=stream))[0] == "passed"  # pretraining
    logged = {"scalars": [{"name": "loss", "phase": "eval", "value": 1.0}]}
    assert make.check("no-validation", make.process(long, evals={}, more=logged))[0] == "passed"


HELD_OUT = "eval_dataset=held_out,"


@pytest.mark.parametrize(
    ("given", "loop", "kind", "status"),
    [
        (HELD_OUT, "trainer.train()", "finished", "fired"),
        (HELD_OUT, "trainer.train()", "interrupted", "passed"),  # it may have meant to evaluate later
        ("eval_dataset=None,", "trainer.train()", "finished", "passed"),
        (HELD_OUT, "optimizer.step()", "finished", "passed"),  # a loop of the script's own
        ("num_train_epochs=15,", "trainer.train()", "finished", "passed"),
    ],
)
def test_held_out_data_that_a_trainer_never_looks_at(make, given: str, loop: str, kind: str, status: str) -> None:
    place = {"file": "a.py", "function": "main"}
    sites = [
        {"site": 1, "role": "step", "line": 107, "source": loop, **place},
        {"site": 2, "role": "setting", "line": 104, "source": given, **place},
        {"site": 3, "role": "setting", "line": 85, "source": "learning_rate=a.lr,", **place},
    ]
    process = make.process(evals={}, sites=sites, end=Exit(kind, 0))
    found, reason, finding = make.check("no-validation", process)
    assert found == status, reason
    if finding is not None:
        assert (finding.severity, finding.location.line) == ("info", 85)
        assert "line 104 hands over" in finding.summary
        assert "eval_strategy" in finding.fix_code
    assert make.check("no-validation", make.process(sites=sites, end=Exit(kind, 0)))[0] == "passed", "it is evaluated"
