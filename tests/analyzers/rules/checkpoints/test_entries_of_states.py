"""Averages that are mixed into the dictionary that state_dict() returned."""

from __future__ import annotations

import pytest

from tracelyze.analyzers.rules.evaluation.ema_not_updated import copies

HEAD = "    @torch.no_grad()\n    def update(self, model):\n"
TAKEN = "        mean = self.model.state_dict()\n        for key, value in model.state_dict().items():\n"
MIXED = "            mean[key] = self.decay * mean[key] + (1 - self.decay) * value"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HEAD + TAKEN + MIXED, 5),
        (HEAD + TAKEN + MIXED + "\n        self.model.load_state_dict(mean)", None),  # which writes them back
        (HEAD + "        mean = self.mean\n        for key, value in model.state_dict().items():\n" + MIXED, None),
        (HEAD + TAKEN + MIXED.replace("[key] =", "[key].copy_(").replace("value", "value)"), None),
        (HEAD + TAKEN + "            mean[key] = value", None),
    ],
)
def test_an_entry_is_replaced_and_the_copy_is_not(make, text: str, line: int | None) -> None:
    site = {"site": 40, "role": "state_dict", "file": "a.py", "line": 3, "function": "update", "source": "state_dict()"}
    process = make.process(sites=[site | {"excerpt": text, "excerpt_line": 1}])
    place = copies.mixing(process)
    assert (place.line if place else None) == line
    if place is not None:
        diff = copies.written_into(process, place)
        assert diff.added == ["            mean[key].copy_(self.decay * mean[key] + (1 - self.decay) * value)"]
        assert "dictionary" in copies.remedy(process, place, updated=False)[0]
