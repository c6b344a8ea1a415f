"""out-of-memory: what asked for it, who held it, and how it came to that; memory-fragmentation."""

from __future__ import annotations

import pytest

from tests.analyzers.exceptions import exception
from tracelyze.analyzers import diagnose
from tracelyze.diagnosis import Exit

COUNT = 400


def test_other_ends_are_not_out_of_memory(make) -> None:
    failed = make.process(events=exception("ValueError", "ValueError: 3"), end=Exit("exception", 1))
    for process in (make.process(), failed):
        assert make.check("out-of-memory", process)[0] == "passed"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 GiB.", "device"),
        ("RuntimeError", "[enforce fail] DefaultCPUAllocator: can't allocate memory", "host"),
        ("MemoryError", "Unable to allocate 8 GiB for an array", "host"),
    ],
)
def test_out_of_memory_is_told_once(make, name, text, kind) -> None:
    process = make.process(events=exception(name, f"{name}: {text}"), end=Exit("exception", 1))
    diagnosis = diagnose(make.run(process))
    assert [finding.rule for finding in diagnosis.findings] == ["out-of-memory"]
    assert kind in diagnosis.findings[0].title


CROWDED = (
    "CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 27.75 MiB is "
    "free. Process 957 has 75.96 GiB memory in use. Process 995 has 918.00 MiB memory in use. Including non-PyTorch "
    "memory, this process has 678.00 MiB memory in use. Of the allocated memory 195.50 KiB is allocated by PyTorch."
)


FULL = CROWDED.replace("75.96 GiB", "0.50 GiB").replace("678.00 MiB", "77.70 GiB")


@pytest.mark.parametrize(
    ("text", "step", "said", "fix"),
    [
        (CROWDED, None, "other programs hold 76.9 GiB of 79.2 GiB", "nvidia-smi"),
        (CROWDED, 40, "other programs hold 76.9 GiB of 79.2 GiB", "nvidia-smi"),
        (FULL.replace("32.00 MiB", "4.00 GiB"), None, "It never fit:", "Halve the batch"),
        (FULL, 40, "It fit until then", "Halve the batch"),
        ("CUDA error: out of memory", None, "does not say who held", "Halve the batch"),
        ("Unable to allocate 8 GiB for an array", None, "before its first step left no room", "Load less"),
        ("CUDA error: out of memory", 40, "It fit until then", "Halve the batch"),
    ],
)
def test_out_of_memory_says_who_held_the_device(make, text, step, said, fix) -> None:
    events = exception("torch.OutOfMemoryError", f"torch.OutOfMemoryError: {text}", step=step)
    finding = make.check("out-of-memory", make.process(events=events, end=Exit("exception", 1)))[2]
    assert said in f"{finding.title} {finding.summary}"
    assert fix in finding.fix
    assert len(finding.title) <= 95
    assert bool(finding.fix_code) is (fix == "Halve the batch")


ASKED = "CUDA out of memory. Tried to allocate 60.00 GiB. GPU 0 has a total capacity of 79.18 GiB."


ARRAY = "Unable to allocate 3.64 TiB for an array with shape (1000000, 1000000) and data type float32"


@pytest.mark.parametrize(
    ("name", "text", "source", "fix"),
    [
        ("torch.OutOfMemoryError", ASKED, "s = z @ z.T", "parts"),
        ("torch.OutOfMemoryError", ASKED, "d = torch.cdist(x, x)", "parts"),
        ("torch.OutOfMemoryError", ASKED, "far = (x[:, None] - x[None]).norm(dim=-1)", "parts"),
        ("torch.OutOfMemoryError", ASKED, "table = nn.Embedding(words, width)", "one tensor smaller"),
        ("torch.OutOfMemoryError", ASKED.replace("60.00 GiB", "2.00 GiB"), "s = z @ z.T", "Halve the batch"),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000 bytes",
         "s = torch.mm(z, z.T)", "parts"),
        ("MemoryError", ARRAY, "near = np.zeros((n, n), dtype=np.float32)", "one tensor smaller"),
        ("MemoryError", "Unable to allocate 1.00 GiB for an array", "s = z @ z.T", "Load less"),
    ],
)  # fmt: skip
def test_one_allocation_that_is_too_large_by_itself(make, name: str, text: str, source: str, fix: str) -> None:
    """A product of all rows with all others does not fit because the batch is large."""
    events = [row | {"source": source, "file": "train.py", "line": 9} for row in exception(name, f"{name}: {text}")]
    facts = {"host_memory_bytes": 64 * 2**30}
    finding = make.check("out-of-memory", make.process(events=events, end=Exit("exception", 1), facts=facts))[2]
    assert fix in finding.fix
    assert ("at once" in finding.summary) is (fix in ("parts", "one tensor smaller"))
    assert ("half the batch size" in finding.fix_code) is (fix == "Halve the batch")
    assert ("checkpoint(part" in finding.fix_code) is (fix == "parts")


@pytest.mark.parametrize(
    ("shapes", "through", "step", "line"),
    [
        (["24x78", "24x75", "24x60", "24x78"], 137, 417, 60),
        (["24x78", "24x75", "24x60", "24x78"], 112, 417, 79),  # an evaluation
        (["24x78", "24x75", "24x60", "24x78"], 137, 2, 79),  # it never fitted
        (["24x78", "24x78", "24x78", "24x78"], 137, 417, 79),  # all as wide
        (["24x78", "16x78", "24x78", "8x78"], 137, 417, 79),
    ],
)
def test_a_batch_that_is_far_longer_than_those_before(make, shapes, through: int, step: int, line: int) -> None:
    text = f'File "/home/me/train.py", line {through}, in main\nFile "/home/me/train.py", line 79, in forward\n'
    text += "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000 bytes"
    where = {"source": "scores = q @ k.transpose(-1, -2)", "file": "train.py", "line": 79}
    events = [row | where for row in exception("RuntimeError", text, step=step)]
    place = {"file": "train.py", "function": "main", "source": "..."}
    roles = {"training-call": 137, "evaluation": 112, "collate": 60}
    sites = [place | {"site": at, "role": role, "line": at} for role, at in roles.items()]
    batches = [{"step": at, "loader": 0, "trained": True, "field": "0", "shape": one} for at, one in enumerate(shapes)]
    process = make.process(
        events=events, end=Exit("exception", 1), facts={"host_memory_bytes": 64 * 2**30}, sites=sites,
        loaders=[{"loader": 0, "dataset": "Logs", "iterable": False, "collated_by": 60}], more={"batches": batches},
    )  # fmt: skip
    finding = make.check("out-of-memory", process)[2]
    assert finding.location.line == line
    assert ("lengths of 60 to 78" in finding.summary) is (line == 60)


@pytest.mark.parametrize(
    ("kept", "peak", "said"),
    [
        (lambda part: 2e9, lambda part: 8e9 + 60e9 * max(0.0, part - 0.6), "its inputs grew"),
        (lambda part: 2e9 + 60e9 * part, lambda part: 8e9 + 60e9 * part, "something is kept"),
        (lambda part: 2e9, lambda part: 8e9, "this needed more memory than what ran before"),
    ],
)
def test_out_of_memory_says_how_it_came_to_that(make, kept, peak, said) -> None:
    steps = make.steps() | {
        "device_allocated": [kept(step / COUNT) for step in range(COUNT)],
        "device_peak": [peak(step / COUNT) for step in range(COUNT)],
    }
    events = exception("torch.OutOfMemoryError", f"torch.OutOfMemoryError: {FULL}", step=COUNT)
    finding = make.check("out-of-memory", make.process(steps, events=events, end=Exit("exception", 1)))[2]
    assert said in finding.summary
    assert finding.summary.startswith("PyTorch asked for 32 MiB more, and this process held 77.7 GiB of 79.2 GiB.")


def test_a_leak_explains_running_out_of_memory(make) -> None:
    steps = make.steps() | {"live_graphs": list(range(1, COUNT + 1))}
    events = exception("MemoryError", "MemoryError", step=COUNT)
    findings = diagnose(make.run(make.process(steps, events=events, end=Exit("exception", 1)))).findings
    assert [(f.rule, f.caused_by) for f in findings] == [("memory-leak", None), ("out-of-memory", "memory-leak")]


GIB = 2**30


def refusals(at: list[int], held: float = 70.0, used: float = 40.0) -> dict[str, list[object]]:
    """Allocator counters over the steps: refusals in the steps `at`, GiB held and ever used."""
    count = len(at) and [sum(step <= index for step in at) for index in range(COUNT)]
    return {
        "device_retries": count or [0] * COUNT,
        "device_reserved": [int(held * GIB)] * COUNT,
        "device_peak": [int(used * GIB)] * COUNT,
        "seconds": [0.9 if index in at else 0.1 for index in range(COUNT)],
    }


def test_memory_fragmentation_when_the_driver_refuses_again_and_again(make) -> None:
    status, _, finding = make.check("memory-fragmentation", make.process(make.steps() | refusals([50, 170, 260, 399])))
    assert status == "fired"
    assert (finding.first_step, finding.last_step) == (51, 400)
    assert finding.cost.seconds == pytest.approx(4 * 0.8)
    assert "expandable_segments" in finding.fix_code


@pytest.mark.parametrize(
    "counters",
    [
        refusals([]),
        refusals([0, 3, 5, 7]),  # while memory fills
        refusals([50, 60, 70]),  # over by the middle of the run
        refusals([50, 300]),  # single long batches
        refusals([50, 170, 260, 399], used=68),  # the memory is really full
    ],
)
def test_memory_fragmentation_is_silent(make, counters) -> None:
    assert make.check("memory-fragmentation", make.process(make.steps() | counters))[0] == "passed"


def test_memory_fragmentation_needs_a_device(make) -> None:
    assert make.check("memory-fragmentation", make.process())[0] == "skipped"
