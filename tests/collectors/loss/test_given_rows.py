"""What a policy acted upon is found again in what it is trained on, and what it was trained on before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tracelyze.collectors.signals.loss.given_rows import GivenRows, Numbers  # noqa: E402


def call(rows: GivenRows, number: int, given: Any) -> Any:
    made = SimpleNamespace(number=number)
    rows.given(made, given)  # type: ignore[arg-type]
    return made


def facts(rows: GivenRows, policy: Any, acted: list[Any]) -> dict[str, Any]:
    compared = rows.compared(policy, acted)
    assert compared.arrived()
    found = compared.facts()
    rows.trained([policy])
    rows.forget()
    return found


def test_vectors_of_a_rollout_in_a_minibatch() -> None:
    rows, seen = GivenRows(torch), torch.randn(5, 8, 3)
    acted = [call(rows, number, seen[number]) for number in range(5)]
    mixed = seen.reshape(-1, 3)[torch.randperm(40)[:16]]
    assert facts(rows, call(rows, 9, mixed), acted) == {"reused": 0.0, "met": 1.0, "as_trained": False}
    again = call(rows, 10, seen[0] + 1)
    both = torch.cat([mixed[:8], torch.randn(8, 3)])
    assert facts(rows, call(rows, 11, both), [again]) == {"reused": 0.5, "met": 0.0, "as_trained": False}


def test_prompts_at_the_beginning_of_what_was_written() -> None:
    rows, ids = GivenRows(torch), torch.randint(0, 99, (6, 12))
    acted = [call(rows, 0, ids[:, :4]), call(rows, 1, ids[:, :5]), call(rows, 2, ids[:, 4:5])]
    assert facts(rows, call(rows, 3, ids), acted) == {"reused": 0.0, "met": 1.0, "as_trained": False}
    acted = [call(rows, 4, ids[:, :4] + 100)]
    assert facts(rows, call(rows, 5, ids), acted) == {"reused": 1.0, "met": 0.0, "as_trained": False}


def test_what_scores_whole_texts_writes_none() -> None:
    rows, ids = GivenRows(torch), torch.randint(0, 99, (6, 12))
    policy = call(rows, 0, ids)
    assert rows.gives_no_samples(call(rows, 1, ids[:3]), policy)
    assert rows.gives_no_samples(SimpleNamespace(number=2), policy), "it was given something else"  # type: ignore[arg-type]
    assert not rows.gives_no_samples(call(rows, 3, ids[:, :4]), policy)
    assert not rows.gives_no_samples(call(rows, 4, torch.randn(6, 3)), call(rows, 5, torch.randn(24, 3)))


@pytest.mark.parametrize("given", [torch.randn(4, 3, dtype=torch.complex64), torch.zeros(0, 4), torch.tensor(3)])
def test_what_has_no_rows(given: Any) -> None:
    rows = GivenRows(torch)
    policy = call(rows, 0, given)
    assert facts(rows, policy, [call(rows, 1, given)])["met"] is None


def test_one_observation_at_a_time_images_and_masks() -> None:
    rows = GivenRows(torch)
    seen = torch.randn(20, 3)
    acted = [call(rows, number, seen[number]) for number in range(8)]
    assert facts(rows, call(rows, 30, seen), acted)["met"] == pytest.approx(0.4)
    images = torch.rand(4, 3, 24, 24)
    assert facts(rows, call(rows, 32, images), [call(rows, 31, images[:2])])["met"] == 0.5
    masks = torch.rand(16, 9) > 0.5
    assert facts(rows, call(rows, 34, masks), [call(rows, 33, masks.clone())]) == {
        "reused": 0.0,
        "met": 1.0,
        "as_trained": True,
    }


def test_weights_of_a_copy() -> None:
    rows, given = GivenRows(torch), torch.randn(8, 3)
    for own, same in ((0.25, True), (0.25 * (1 + 1e-8), True), (0.2501, False)):
        policy, acted = call(rows, 1, given), call(rows, 0, given)
        states = [Numbers(torch, torch.tensor([one], dtype=torch.float64)) for one in (0.25, own)]
        assert rows.compared(policy, [acted], states).facts()["same"] is same
