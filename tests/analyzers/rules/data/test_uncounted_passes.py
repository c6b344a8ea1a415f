"""same-order-every-epoch where Accelerate's loader is left before its end, so that its sampler counts no pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.batch_orders import RANDOM, epochs, shuffled
from tests.analyzers.sites import applied, lines_of

LOOP = """\
loader = DataLoader(data, batch_size=32, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(9):
    for step, (x, y) in enumerate(loader):
        if step == 40:
            break
        train(x, y)
    validate(model)"""


def judged(make: Any, text: str, seeds: list[int], sampler: str = "SeedableRandomSampler") -> Any:
    sites = lines_of(text, dataloader="loader = DataLoader(", epochs="for epoch in", loader="in enumerate(loader)")
    loader = RANDOM | {"loader": 0, "sampler": sampler, "takes_epoch": "batch_sampler.sampler"}
    loader |= {"made_at": 0, "site": 3}  # numbered by their lines
    process = make.process(loaders=[loader], more={"batches": epochs(shuffled(seeds))}, sites=sites)
    return make.check("same-order-every-epoch", process)


def test_the_loop_over_epochs_counts_the_passes(make: Any) -> None:
    finding = judged(make, LOOP, [1] * 4)[2]
    assert (finding.location.line, finding.confidence) == (3, "certain")
    assert "Line 6 leaves the loop over it" in finding.summary
    assert "manual_seed" not in finding.summary + finding.fix, "no seed is put back"
    assert "    loader.set_epoch(epoch)\n" in applied(LOOP, finding.diff), "its sampler is told by the loader itself"


def test_a_loop_that_reads_to_the_end_may_have_another_reason(make: Any) -> None:
    whole = LOOP.replace("        if step == 40:\n            break\n", "")
    finding = judged(make, whole, [1] * 4)[2]
    assert (finding.confidence, "leaves the loop" in finding.summary) == ("likely", False)


@pytest.mark.parametrize("seeds", [[1, 2, 3, 4], [1, 2, 1, 2]])
def test_orders_that_differ(make: Any, seeds: list[int]) -> None:
    assert judged(make, LOOP, seeds)[0] == "passed"


def test_another_sampler_follows_the_seed(make: Any) -> None:
    assert "set_epoch" not in judged(make, LOOP, [1] * 4, "RandomSampler")[2].fix
