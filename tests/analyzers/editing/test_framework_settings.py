"""Edits of lines that give a framework a setting, and examples for models that are made beside a trained one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers.script.settings import framework_arguments
from tracelyze.diagnosis import Finding, Location, Setting


def edited(make: Any, line: str, setting: Setting) -> list[str]:
    """What an edit leaves of a line that gives a trainer a setting."""
    site = {"site": 0, "role": "setting", "file": "train.py", "line": 12, "function": "main", "source": line,
            "excerpt": f"    trainer = Trainer(\n        {line}\n    )", "excerpt_line": 11}  # fmt: skip
    place = Location("train.py", 12, "main", line)
    found = Finding(rule="x", severity="info", confidence="likely", title="", summary="", fix="", location=place,
                    setting=setting)  # fmt: skip
    names = ("max_grad_norm", "gradient_clip_val", "detect_anomaly")
    diff = framework_arguments.with_edit(found, make.process(sites=[site]), names).diff
    return diff.added if diff is not None else []


CLIP = Setting(("max_norm",), (0.001,), "0.5")


@pytest.mark.parametrize(
    ("line", "setting", "added"),
    [
        ("gradient_clip_val=1e-3,", CLIP, "        gradient_clip_val=0.5,"),
        ("args = Args(out, max_grad_norm = 0.001)", CLIP, "        args = Args(out, max_grad_norm = 0.5)"),
        ("detect_anomaly=True", Setting(("mode",), (True,), "False"), "        detect_anomaly=False"),
        ("gradient_clip_val=cfg.clip,", CLIP, None),  # the line of the constant is another one
        ("gradient_clip_val=1.0,", CLIP, None),  # not what was measured
        ("gradient_clip_val=1e-3 * scale,", CLIP, None),
        ("gradient_clip_val=1e-3,", Setting(("max_norm",), (0.001,)), None),  # more than the value changes
        ("Args(max_grad_norm=1e-3) if short else Args(max_grad_norm=1e-3)", CLIP, None),
    ],
)
def test_the_setting_of_a_framework_gets_the_value(make: Any, line: str, setting: Setting, added: str | None) -> None:
    assert edited(make, line, setting) == ([added] if added is not None else [])


def unset_in(make: Any, saved: str, loads: list[dict[str, Any]]) -> Any:
    """A probe on a fresh encoder, after an encoder was trained and saved."""
    where = {"file": "probe.py", "function": "probe"}
    made = "encoder = Encoder(cfg.width).eval()"
    sites = [
        where | {"site": 0, "role": "save", "line": 8, "source": saved, "excerpt": f"    {saved}", "excerpt_line": 8},
        where | {"site": 1, "role": "module", "line": 21, "source": made, "excerpt": f"    {made}", "excerpt_line": 21},
        where | {"site": 2, "role": "forward", "line": 25, "source": "features = encoder(images)"},
    ]  # fmt: skip
    model = {"name": "Encoder", "elements": 2000, "parameters": 9}
    more = {
        "models": [model | {"model": 0}, model | {"model": 1}],
        "links": [{"step": 1, "optimizer": 0, "model": 0}],
        "modules": [{"model": 1, "module": "", "kind": "Encoder", "made_at": 1}],
        "unset": [{"step": 400, "model": 1, "modules": 3, "of": 3, "spectral": 0, "call": 1, "training": False}],
        "checkpoints": [{"step": 400, "action": "save", "file": "encoder.pt", "site": 0}],
        "loads": loads,
    }
    evals = {"after_step": np.array([400, 400]), "model": np.array([1, 1]), "forwards": np.array([5, 5]),
             "site": np.array([2, 2]), "losses": np.array([0, 0])}  # fmt: skip
    return make.check("unset-running-state", make.process(make.steps(), sites=sites, evals=evals, more=more))[2]


@pytest.mark.parametrize(
    ("saved", "load"),
    [
        ("torch.save(encoder.state_dict(), path)", "encoder.load_state_dict(torch.load(path))"),
        ('torch.save({"net": m.state_dict(), "epoch": 3}, out)', 'encoder.load_state_dict(torch.load(out)["net"])'),
        ("torch.save(everything, path)", "encoder.load_state_dict(trained.state_dict())"),
    ],
)
def test_a_model_that_is_made_anew_loads_what_was_saved(make: Any, saved: str, load: str) -> None:
    finding = unset_in(make, saved, [])
    assert finding.location.line == 21
    assert finding.fix_code.endswith(f"encoder = Encoder(cfg.width).eval()\n{load}")


def test_a_model_that_loads_weights_is_not_said_to_be_new(make: Any) -> None:
    load = {"step": 400, "name": "Encoder", "given": 9, "expected": 18, "missing": 0, "unexpected": 0}
    assert "makes it anew" not in unset_in(make, "torch.save(encoder.state_dict(), path)", [load]).summary
