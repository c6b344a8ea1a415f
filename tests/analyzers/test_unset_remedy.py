"""The line and the remedy where a model keeps its batch normalisations in eval mode from the start."""

from __future__ import annotations


def test_a_train_method_that_calls_eval(make) -> None:
    row = {"step": 1, "model": 0, "modules": 3, "of": 3, "spectral": 0, "training": True}
    sites = [
        {"site": number, "role": "eval-mode", "file": "train.py", "line": line, "function": function, "source": source}
        for number, line, function, source in ((1, 44, "train", "m.eval()"), (2, 60, "evaluate", "model.eval()"))
    ]
    process = make.process(make.steps(), sites=sites, more={"unset": [row]})
    finding = make.check("unset-running-state", process)[2]
    assert (finding.severity, finding.location.line) == ("warning", 44)
    assert finding.fix.startswith("Leave the batch normalisations in train mode")
    assert not finding.fix_code
