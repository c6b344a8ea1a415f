"""A finding about a loop that a framework runs stands at the argument that holds the setting."""

from __future__ import annotations

from tracelyze.analyzers.script.settings import framework_arguments


def at(make, source: str, *given: str):
    sites = [
        {"site": 0, "role": "step", "file": "train.py", "line": 60, "function": "main", "source": source},
        *(
            {
                "site": number,
                "role": "setting",
                "file": "train.py",
                "line": 40 + number,
                "function": "main",
                "source": one,
            }
            for number, one in enumerate(given, 1)
        ),
    ]
    process = make.process(make.steps(), sites=sites)
    return framework_arguments.in_place_of(process.location("step"), process, ("learning_rate",)).line


def test_where_a_framework_runs_the_loop(make) -> None:
    assert at(make, "trainer.train()", "learning_rate=args.lr,", "fp16=True,") == 41
    assert at(make, "trainer.train()", "fp16=True,") == 60
    assert at(make, "trainer.train()", "learning_rate=1e-3)", "learning_rate=1e-4)") == 60, "which of both is not known"
    assert at(make, "optimizer.step()", "learning_rate=args.lr,") == 60, "the script's own loop"
