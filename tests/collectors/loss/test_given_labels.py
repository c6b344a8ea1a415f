"""Labels that enter a model with its loss in it, and tokens that are added between two trainings."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.collectors.conftest import program
from tracelyze.analyzers import diagnose

torch = pytest.importorskip("torch")

from tracelyze.collectors.signals.loss.given_labels import GivenLabels  # noqa: E402

RULES = ["doubled-bos", "padding-in-loss", "new-tokens-untrained"]


@pytest.mark.starts_programs
@pytest.mark.parametrize("how", ["fused", "called"])
def test_faults_of_texts_are_found_in_fused_losses_too(collect: Any, how: str) -> None:
    diagnosis = diagnose(collect(sys.executable, program("fused.py"), how).run, select=RULES)
    found = {one.rule: one for one in diagnosis.findings}
    assert found.keys() == set(RULES), [check.reason for check in diagnosis.checks]
    named = "the model's own loss" if how == "fused" else "cross_entropy"
    assert named in found["padding-in-loss"].title
    untrained = found["new-tokens-untrained"]
    assert untrained.first_step in (1, 2)
    assert len(untrained.trainings) == 1, "of the second training's own steps"


@pytest.mark.parametrize(
    ("library", "more", "across"),
    [
        ("transformers.models.gpt2", {}, 1.0),
        ("transformers.models.gpt2", {"attention_mask": [[1, 1, 0]]}, 1.0),
        ("transformers.models.gpt2", {"attention_mask": [[1, 2, 2]]}, math.nan),  # numbers of samples
        ("transformers.models.gpt2", {"attention_mask": [[[1, 0, 0], [0, 1, 0], [0, 1, 1]]]}, None),
        ("transformers.models.gpt2", {"position_ids": [[0, 0, 1]]}, None),
        ("transformers.models.gpt2", {"cu_seq_lens_q": [0, 1, 3]}, None),
        ("transformers.models.gpt2", {"num_items_in_batch": 3, "use_cache": False}, 1.0),
        ("train", {}, None),  # a model of one's own may find the ends of samples in the ids
    ],
)
def test_what_tells_the_samples_of_a_row_apart(library: str, more: dict[str, Any], across: float | None) -> None:
    kind = type("Causal", (torch.nn.Linear,), {"__module__": library})
    module = kind(2, 2)
    call = SimpleNamespace(model=SimpleNamespace(module=lambda: module))
    ids = torch.tensor([[5, 6, 7]])
    given = {name: one if isinstance(one, bool) else torch.tensor(one) for name, one in more.items()}
    signal = SimpleNamespace(torch=torch)
    found = GivenLabels._seen_across(signal, call, (), {"input_ids": ids, "labels": ids, **given})  # type: ignore[arg-type]
    known = {name: float(one) for name, one in found.items()}
    assert known == ({} if across is None else {"crosses": pytest.approx(across, nan_ok=True)})
