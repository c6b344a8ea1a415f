"""Each diagnosis fires on a trace that has its fault, and on none of its look-alikes."""

from __future__ import annotations

import json

import pytest

from tests.kineto.made import MAIN, Made, training, write
from tracelyze.analyzers.kineto import diagnose_traces
from tracelyze.analyzers.kineto.rules import RULES
from tracelyze.diagnosis import Diagnosis
from tracelyze.errors import InputError


def diagnose(made: Made, path, **how) -> Diagnosis:
    return diagnose_traces(made.write(path / "trace.json"), **how)


def fired(diagnosis: Diagnosis) -> set[str]:
    return {finding.rule for finding in diagnosis.findings}


# Healthy: 200 kernels of 100 us per step, launched in 20 us each, so that the device is never idle for long.
FAULTS = {
    "dataloader-bottleneck": {"loading": 8_000},
    "host-bound": {"kernel": 30, "launch": 100, "kernels": 300},
    "sync-stalls": {"waiting": True, "reading": 400},
    "allocator-stalls": {"allocating": 6_000},
    "pageable-copies": {"copying": 3_000},
    "exposed-communication": {"communicating": 5_000},
    "slow-steps": {"slow": {7: 60_000}, "steps": 10},
}


def test_a_healthy_training_has_no_finding(tmp_path):
    diagnosis = diagnose(training(steps=8), tmp_path)
    assert diagnosis.verdict == "ok", diagnosis.findings
    assert {check.rule for check in diagnosis.checks} == {rule.id for rule in RULES}
    assert all(check.reason for check in diagnosis.checks)


@pytest.mark.parametrize("rule", [rule for rule in FAULTS if rule != "host-bound"])
def test_a_fault_is_found_and_nothing_else(tmp_path, rule):
    assert fired(diagnose(training(**{"steps": 8} | FAULTS[rule]), tmp_path)) == {rule}


def test_slow_launches_are_host_bound(tmp_path):
    assert fired(diagnose(training(**FAULTS["host-bound"]), tmp_path)) == {"host-bound"}


def test_waits_in_every_step_are_found_with_their_count_and_line(tmp_path):
    made = Made()
    for step in range(6):
        begin = made.now
        for _ in range(100):
            made.launch("gemm", 100)
            made.launch("gemm", 100)
            made.synchronise()
            made.host("aten::item", 60)
        made.span("python_function", "train.py(31): train", begin, made.now - begin, tid=MAIN)
        made.span("user_annotation", f"ProfilerStep#{step}", begin, made.now - begin)
    finding = {one.rule: one for one in diagnose(made, tmp_path).findings}["sync-stalls"]
    assert "100" in finding.title
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("train.py", 31)


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        # The first batch of a trace, and one slow batch, are no bottleneck.
        ({"steps": 8, "loading": 1}, "dataloader-bottleneck"),
        # Tiny steps on data in memory: half the step, but less than a worker could ever save.
        ({"steps": 400, "kernels": 3, "kernel": 50, "loading": 400, "optimizer": False}, "dataloader-bottleneck"),
        # A slow first step is warm-up.
        ({"steps": 8, "slow": {0: 500_000}}, "slow-steps"),
        # Steps of varying length.
        ({"steps": 12, "slow": dict.fromkeys(range(0, 12, 2), 8_000)}, "slow-steps"),
        # A pinned trace tells nothing, a small copy costs nothing.
        ({"copying": 400}, "pageable-copies"),
        ({"communicating": 800}, "exposed-communication"),
        ({"allocating": 500}, "allocator-stalls"),
        # One wait per step, at its end.
        ({}, "sync-stalls"),
        # The device is never idle for long.
        ({"steps": 8}, "host-bound"),
        # A host that is late anyway: the waits are over as soon as they begin, and removing them saves nothing.
        ({"kernel": 5, "launch": 30, "waiting": True, "kernels": 600}, "sync-stalls"),
    ],
)
def test_look_alikes_pass(tmp_path, how, rule):
    (check,) = diagnose(training(**how), tmp_path, select=[rule]).checks
    assert check.status == "passed"


@pytest.mark.parametrize("stall", [0, 4])
def test_one_stall_of_the_loader_is_no_bottleneck(tmp_path, stall):
    made = Made()
    for step in range(9):
        begin = made.now
        length = 400_000 if step == stall else 50
        made.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", length, "user_annotation")
        for _ in range(200):
            made.launch("gemm", 100)
        made.synchronise()
        made.span("user_annotation", f"ProfilerStep#{step}", begin, made.now - begin)
    (check,) = diagnose(made, tmp_path, select=["dataloader-bottleneck"]).checks
    assert check.status == "passed"
    assert ("first batch alone took 400 ms" in check.reason) is (stall == 0)


@pytest.mark.parametrize("how", [{"steps": 2}, {"steps": 5, "kernels": 1}])
def test_traces_too_small_to_judge_are_skipped(tmp_path, how):
    diagnosis = diagnose(training(**how), tmp_path)
    assert diagnosis.verdict == "unknown"
    assert diagnosis.verdict_reason.startswith("The trace covers ")
    check = next(check for check in diagnosis.checks if check.rule == "dataloader-bottleneck")
    assert (check.status, "too" in check.reason) == ("skipped", True)


def test_host_work_before_the_first_kernel_is_seen(tmp_path):
    finding = diagnose(training(steps=8, preparing=15_000), tmp_path).findings[0]
    assert (finding.rule, finding.confidence) == ("dataloader-bottleneck", "possible")


def test_a_training_without_a_device_that_waits_for_data(tmp_path):
    made = training(steps=8, loading=20_000, launch=100)
    made.events = [one for one in made.events if one["cat"] in ("cpu_op", "user_annotation")]
    diagnosis = diagnose(made, tmp_path)
    assert fired(diagnosis) == {"dataloader-bottleneck"}
    reasons = {check.rule: check.reason for check in diagnosis.checks}
    assert "no work on a device" in reasons["host-bound"]


def test_the_advice_depends_on_whether_workers_are_used(tmp_path):
    alone = diagnose(training(loading=8_000), tmp_path).findings[0]
    helped = diagnose(training(loading=8_000, workers=True), tmp_path).findings[0]
    assert "num_workers=4" in alone.fix_code
    assert helped.fix_code == ""
    assert "add workers" in helped.fix


def test_cost_and_evidence_agree_with_the_construction(tmp_path):
    finding = diagnose(training(steps=8, loading=8_000), tmp_path).findings[0]
    assert finding.cost is not None
    assert finding.cost.seconds == pytest.approx(8 * 0.008)
    assert finding.cost.share == pytest.approx(8_000 / (8_000 + 201 * 100 + 50), rel=0.01)
    assert all(one.source for one in finding.evidence if one.threshold is not None)


def test_every_finding_has_the_picture_of_the_steps_and_serialises(tmp_path):
    for number, how in enumerate(FAULTS.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        diagnosis = diagnose(training(**{"steps": 8} | how), folder)
        json.dumps(diagnosis.to_dict(), allow_nan=False)
        for finding in diagnosis.findings:
            (chart,) = finding.charts
            assert {line.style for line in chart.lines} == {"bars"}
            total = sum(sum(value or 0 for value in line.y) for line in chart.lines)
            assert total * 1e-3 == pytest.approx(diagnosis.run.duration_s, rel=1e-3)


def test_more_steps_than_a_chart_can_hold_are_averaged(tmp_path):
    diagnosis = diagnose(training(steps=900, kernels=4, kernel=50), tmp_path)
    assert len(diagnosis.charts[0].x) == 200


def test_selecting_ignoring_and_thresholds(tmp_path):
    made = training(steps=8, loading=8_000)
    assert [check.rule for check in diagnose(made, tmp_path, select=["straggler"]).checks] == ["straggler"]
    assert diagnose(made, tmp_path, ignore=["dataloader-bottleneck"]).verdict == "ok"
    tolerant = {"dataloader-bottleneck": {"waiting": 0.5}, "memory-leak": {"anything": 1.0}}
    assert diagnose(made, tmp_path, thresholds=tolerant).verdict == "ok"
    elsewhere = diagnose(made, tmp_path, select=["memory-leak"]).checks
    assert [(check.rule, check.status) for check in elsewhere] == [("memory-leak", "skipped")]
    with pytest.raises(InputError, match="no such rule"):
        diagnose(made, tmp_path, select=["no-such-rule"])


def test_several_windows_of_one_rank_are_judged_together(tmp_path):
    training(steps=6, loading=8_000).write(tmp_path / "rank0.window1.json")
    training(steps=6, loading=8_000, base=9e7).write(tmp_path / "rank0.window2.json")
    diagnosis = diagnose_traces(tmp_path)
    assert (diagnosis.run.ranks, len(diagnosis.findings)) == (1, 1)


def test_an_unreadable_file_among_several_is_left_out_and_said(tmp_path):
    for rank in range(2):
        training(rank=rank, world_size=3).write(tmp_path / f"rank{rank}.json")
    (tmp_path / "rank2.json").write_text('{"schemaVersion": 1, "traceEvents": [')
    diagnosis = diagnose_traces(tmp_path)
    assert diagnosis.run.ranks == 2
    assert any("Left out" in note and "rank2.json" in note for note in diagnosis.run.notes)


def test_thresholds_say_where_they_come_from():
    for rule in RULES:
        for threshold in rule.thresholds:
            assert threshold.source.startswith(("derived: ", "measured: ", "PyTorch's")), (rule.id, threshold.name)


def test_several_windows_of_one_process_are_of_one_rank(tmp_path):
    """As torch.profiler's tensorboard_trace_handler names them, of a job that is not distributed."""
    for stamp in (1717171717000000000, 1717171727000000000):
        made = training(base=1e6 + stamp / 1e9)
        document = made.document()
        del document["distributedInfo"]
        write(tmp_path / f"host_4242.{stamp}.pt.trace.json.gz", document)
    assert diagnose_traces(tmp_path).run.ranks == 1
    write(tmp_path / "host_4243.1717171717000000000.pt.trace.json.gz", document)
    assert diagnose_traces(tmp_path).run.ranks == 2


def test_a_host_of_which_nothing_is_recorded_is_not_said_to_load_in_time(tmp_path):
    made = training(loading=20_000)
    made.events = [one for one in made.events if one["cat"] in ("kernel", "cuda_runtime") or "Step" in one["name"]]
    diagnosis = diagnose_traces(made.write(tmp_path / "trace.json"))
    check = next(check for check in diagnosis.checks if check.rule == "dataloader-bottleneck")
    assert check.status == "fired"
    assert "ProfilerActivity.CPU" in diagnosis.findings[0].summary
    made = training(kernel=30, launch=100, kernels=300)  # the host's slowness is not at the beginning of the step
    made.events = [one for one in made.events if one["cat"] in ("kernel", "cuda_runtime") or "Step" in one["name"]]
    diagnosis = diagnose_traces(made.write(tmp_path / "trace.json"))
    check = next(check for check in diagnosis.checks if check.rule == "dataloader-bottleneck")
    assert check.status == "skipped"
    assert "ProfilerActivity.CPU" in check.reason
