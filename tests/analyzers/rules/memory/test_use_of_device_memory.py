"""Memory of a device that is nearly used up, or free."""

from __future__ import annotations

from typing import Any

COUNT = 200


def device(make: Any, peak: float, seconds: float = 7200.0, busy: float | None = 0.97) -> Any:
    steps = make.steps(COUNT) | {"device_peak": [int(peak * 80e9)] * COUNT, "seconds": [seconds / COUNT] * COUNT}
    looks = [{"device": 0, "busy": busy}] if busy is not None else []
    facts = {"device": {"type": "cuda", "memory_bytes": 80e9}}
    return make.process(steps, facts=facts, more={"devices": looks})


def test_memory_that_is_nearly_used_up(make) -> None:
    _, _, finding = make.check("memory-headroom", device(make, 0.98))
    assert finding.severity == "info"
    assert make.check("memory-headroom", device(make, 0.8))[0] == "passed"
    refused = device(make, 0.98)
    refused.steps["device_retries"][:] = 1
    assert "refused memory once." in make.check("memory-headroom", refused)[2].summary
    assert make.check("memory-headroom", make.process())[0] == "skipped"


def test_memory_that_is_free(make) -> None:
    assert make.check("memory-underused", device(make, 0.1))[2].severity == "info"
    for process in (device(make, 0.6), device(make, 0.1, 60.0), device(make, 0.1, busy=0.5)):
        assert make.check("memory-underused", process)[0] == "passed"
    assert make.check("memory-underused", device(make, 0.1, busy=None))[0] == "skipped"
