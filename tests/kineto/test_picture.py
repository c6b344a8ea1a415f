"""Timelines and tables: the steps that are chosen, what is in their lanes, and the numbers of operators and kernels."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelyze.analyzers.kineto import diagnose_traces, summarise
from tracelyze.analyzers.kineto.attribution.kernel_names import LONGEST, short
from tracelyze.analyzers.kineto.page import listings, picture
from tracelyze.analyzers.kineto.page.decimation import MOST_INNER, MOST_SLICES, Slices, lane
from tracelyze.analyzers.kineto.reading.blocks import Blocks
from tracelyze.analyzers.kineto.reading.detail import innermost, look_again, parents
from tracelyze.analyzers.kineto.reading.importer import import_traces
from tracelyze.analyzers.kineto.reading.reader import read_trace
from tracelyze.diagnosis import KINDS
from tracelyze.errors import InputError
from tracelyze.reports import render

from .made import MAIN, Made, training, write
from .test_real_traces import FOLDER as TRACES

KIND = {name: index for index, name in enumerate(KINDS)}
FULL = {"loading": 30_000, "preparing": 5_000, "copying": 300, "communicating": 4_000, "allocating": 2_000}


def shown(path, **options):
    found = diagnose_traces(path, picture=True, **options)
    assert found.picture is not None
    assert not [note for note in found.run.notes if "drawn" in note]
    return found.picture


def lane_of(timeline, name):
    (found,) = [one for one in timeline.lanes if one.name.startswith(name)]
    return found


def rows_of(listing):
    heads = [name for name, _ in listing.columns]
    return {row[0]: dict(zip(heads[1:], row[1:], strict=True)) for row in listing.rows}


def test_the_typical_and_the_slowest_step_are_shown(tmp_path):
    path = training(steps=8, kernels=100, slow={5: 80_000.0, 0: 500_000.0}).write(tmp_path / "trace.json")
    typical, slowest = shown(path).timelines
    assert typical.title.startswith("A typical step: step ")
    assert "step 1," not in typical.title  # warms up
    assert slowest.title.startswith("The slowest step: step 6,")
    (summary,) = summarise([path])
    assert slowest.length_us == pytest.approx(summary.duration[5], abs=0.1)


def test_even_steps_need_no_second_timeline(tmp_path):
    path = training(steps=6, kernels=100).write(tmp_path / "trace.json")
    assert len(shown(path).timelines) == 1


def test_lanes_add_up_to_what_the_attribution_says(tmp_path):
    path = training(steps=5, kernels=120, slow={3: 40_000.0}, **FULL).write(tmp_path / "trace.json.gz")
    (summary,) = summarise([path])
    slowest = shown(path).timelines[1]
    device = summary.device
    assert lane_of(slowest, "device idle").busy_us == pytest.approx(device.idle[3], abs=1)
    assert lane_of(slowest, "stream 7, mostly computing").busy_us == pytest.approx(
        device.compute[3] + device.exposed_copy[3], abs=1
    )
    assert lane_of(slowest, "stream 20, mostly communication").busy_us == pytest.approx(4_000, abs=1)
    assert lane_of(slowest, "data loader").busy_us == pytest.approx(30_000, abs=1)
    idle = lane_of(slowest, "device idle")
    by_kind = np.bincount(idle.kind, idle.busy, len(KINDS))
    for cause in ("input", "preparation", "python", "allocator"):
        assert by_kind[KIND[cause]] == pytest.approx(device.cause(cause)[3], abs=slowest.length_us / 400 + 1)


def test_every_lane_stays_within_the_step_and_its_limits(tmp_path):
    path = training(steps=4, kernels=3000, kernel=3, launch=5, **FULL).write(tmp_path / "trace.json")
    timeline = shown(path).timelines[0]
    for one in timeline.lanes:
        assert len(one.start) <= MOST_SLICES + (MOST_INNER if one.shown else 0)
        assert sum(one.merged) == one.slices
        assert min(one.start) >= 0
        ends = [start + length for start, length in zip(one.start, one.length, strict=True)]
        assert max(ends) <= timeline.length_us + 0.2
        assert max(one.label) < len(timeline.names)
        assert max(one.kind) < len(KINDS)


def test_runtime_calls_have_a_lane_however_deep_they_are(tmp_path):
    timeline = shown(training(steps=3, kernels=40).write(tmp_path / "trace.json")).timelines[0]
    calls = lane_of(timeline, "main thread, runtime calls")
    assert {timeline.names[label] for label in calls.label} >= {"cudaLaunchKernel"}
    assert max(calls.level) == 0


def test_events_say_their_grid_bytes_and_shapes(tmp_path):
    made = training(steps=3, kernels=4, copying=300)
    for event in made.events:
        arguments = event.setdefault("args", {})
        if event["cat"] == "kernel":
            arguments |= {"grid": [8, 2, 1], "block": [128, 1, 1]}
        elif event["cat"] == "gpu_memcpy":
            arguments |= {"bytes": 4096}
        elif event["cat"] == "cpu_op":
            arguments |= {"Input Dims": [[32, 3, 224, 224], [], [64]]}
    timeline = shown(made.write(tmp_path / "trace.json")).timelines[0]
    stream = lane_of(timeline, "stream 7")
    assert {timeline.details[detail] for detail in stream.detail if detail >= 0} >= {
        "grid 8 \u00d7 2 \u00d7 1, block 128 \u00d7 1 \u00d7 1"
    }
    (main,) = [one for one in timeline.lanes if one.name == "main thread"]
    assert "inputs [32 \u00d7 3 \u00d7 224 \u00d7 224], [64]" in {
        timeline.details[detail] for detail in main.detail if detail >= 0
    }


@pytest.mark.parametrize("grid", ["8x8", [8, "<b>"], {"x": 1}, None, [10**40]])
def test_an_odd_grid_is_left_out(tmp_path, grid):
    made = training(steps=3, kernels=4)
    for event in made.events:
        if event["cat"] == "kernel":
            event.setdefault("args", {}).update(grid=grid, block=[64, 1, 1])
    timeline = shown(made.write(tmp_path / "trace.json")).timelines[0]
    assert set(timeline.details) <= {"block 64 \u00d7 1 \u00d7 1"}


def test_levels_that_are_not_drawn_at_first_leave_the_outer_ones_as_fine(tmp_path):
    count = 2000
    start = np.arange(count, dtype=float)
    level = np.arange(count) % 4
    zeros = np.zeros(count, dtype=np.int64)
    drawn = lane("lane", Slices(start, start + 0.9, zeros, zeros, level), 0.0, float(count), shown=1)
    outer = [one for one in drawn.level if one == 0]
    assert len(outer) == 500
    assert drawn.shown == 1
    assert sum(drawn.merged) == drawn.slices == count


@st.composite
def slices(draw):
    count = draw(st.integers(1, 3000))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    start = np.sort(random.uniform(-100, 10_000, count))
    length = random.exponential(draw(st.sampled_from([0.01, 1.0, 50.0])), count)
    small = [random.integers(0, 4, count) for _ in range(3)]
    return Slices(start, start + length, *small)


@given(slices())
def test_decimation_keeps_count_and_time_and_every_long_slice(found):
    drawn = lane("lane", found, 0.0, 8_000.0)
    inside = (found.end > 0) & (found.start < 8_000)
    if not inside.any():
        assert drawn is None
        return
    assert len(drawn.start) <= MOST_SLICES
    assert sum(drawn.merged) == inside.sum() == drawn.slices
    length = np.minimum(found.end, 8_000)[inside] - np.maximum(found.start, 0)[inside]
    assert sum(drawn.busy) == pytest.approx(length.sum(), abs=0.06 * len(drawn.busy))
    assert drawn.busy_us <= 8_000.1
    if inside.sum() <= MOST_SLICES:
        alone = sum(count == 1 for count in drawn.merged)
        assert alone >= (length >= 8_000 / 4096).sum()


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), min_size=1, max_size=40), st.data())
def test_innermost_range_of_properly_nested_ones(raw, data):
    # Cut so that each range either holds the next or ends before it begins.
    start = np.array(sorted(begin for begin, _ in raw), dtype=float)
    ends: list[float] = []
    stack: list[float] = []
    for begin, (_, length) in zip(start, raw, strict=True):
        while stack and stack[-1] <= begin:
            stack.pop()
        end = min(begin + length, *stack) if stack else begin + length
        stack.append(end)
        ends.append(end)
    order = np.lexsort((-np.array(ends), start))
    start, end = start[order], np.array(ends)[order]
    moment = np.array([data.draw(st.floats(0, 100))])
    found = innermost(start, end, parents(start, end), moment)[0]
    holding = [index for index in range(len(start)) if start[index] <= moment[0] <= end[index]]
    assert (found == -1) == (not holding)
    if holding:
        assert start[found] <= moment[0] <= end[found]
        assert end[found] - start[found] == min(end[index] - start[index] for index in holding) or found == holding[-1]


def nested(made: Made, stacks: str) -> None:
    """Three steps: a loss in main() of train.py, in a function at line 40; its backward on another thread.

    aten::linear (100 us) calls aten::addmm (60 us), which launches a GEMM of 500 us; AddmmBackward0 launches one of
    700 us. The main thread then waits 300 us for the device. `stacks`: how the trace tells Python lines.
    """
    for step in range(3):
        begin = made.now
        place = "train.py(42): loss;train.py(10): <module>"
        told = {"Call stack": "torch/nn/functional.py(9): linear;" + place} if stacks == "arguments" else {}
        if stacks == "frames":
            made.span("python_function", "train.py(10): <module>", begin, 2_000, tid=MAIN)
            made.span("python_function", "train.py(40): loss", begin + 10, 400)
            made.span("python_function", "torch/nn/functional.py(9): linear", begin + 15, 200)
        made.span("cpu_op", "aten::linear", begin + 20, 100, **{"Sequence number": step, "Fwd thread id": 0, **told})
        made.span("cpu_op", "aten::addmm", begin + 30, 60, **{"Sequence number": step, "Fwd thread id": 0, **told})
        made.span("cuda_runtime", "cudaLaunchKernel", begin + 50, 10, correlation=2 * step + 1)
        device = {"device": 0, "stream": 7}
        made.span("kernel", "void gemm<float>(int)", begin + 70, 500, 0, 7, correlation=2 * step + 1, **device)
        node = {"Sequence number": step, "Fwd thread id": 1}
        name = "autograd::engine::evaluate_function: AddmmBackward0"
        made.span("cpu_op", name, begin + 600, 80, tid=200, **node)
        made.span("cpu_op", "aten::mm", begin + 610, 50, tid=200)
        made.span("cuda_runtime", "cudaLaunchKernel", begin + 620, 10, tid=200, correlation=2 * step + 2)
        made.span("kernel", "void gemm2<float>(int)", begin + 650, 700, 0, 7, correlation=2 * step + 2, **device)
        made.span("cuda_runtime", "cudaDeviceSynchronize", begin + 1_060, 300)
        made.span("user_annotation", f"ProfilerStep#{step}", begin, 2_000)
        made.now = begin + 2_000


@pytest.mark.parametrize(
    ("stacks", "line"), [("arguments", "train.py:42 loss"), ("frames", "train.py:40 loss"), ("none", None)]
)
def test_tables_know_operators_times_and_lines(tmp_path, stacks, line):
    made = Made()
    nested(made, stacks)
    kernels, operators = shown(made.write(tmp_path / "trace.json")).listings
    found = rows_of(kernels)
    assert kernels.full == ["void gemm2<float>(int)", "void gemm<float>(int)"]
    assert found["gemm2"]["launched by"] == "aten::mm"
    assert found["gemm"] == found["gemm"] | {
        "class": "GEMM",
        "Calls per step": 1,
        "Time per step": 0.5,
        "Of all device time": pytest.approx(500 / 1200, abs=1e-3),
        "Mean": 500.0,
        "launched by": "aten::addmm",
    }
    by_name = rows_of(operators)
    assert by_name["aten::linear"]["Host, in all per step"] == pytest.approx(0.1)
    assert by_name["aten::linear"]["Host, itself per step"] == pytest.approx(0.04)
    assert by_name["aten::addmm"]["Host, itself per step"] == pytest.approx(0.05)
    assert by_name["aten::addmm"]["Device, itself per step"] == pytest.approx(0.5)
    assert by_name["AddmmBackward0"]["Host, itself per step"] == pytest.approx(0.03)
    assert by_name["cudaDeviceSynchronize"]["Host, in all per step"] == pytest.approx(0.3)
    assert ("Python", "text") in operators.columns or line is None
    if line is None:
        assert ("Python", "text") not in kernels.columns
        return
    # The backward has no Python of its own: it is charged to the operator whose gradient it computes.
    for row in (found["gemm"], found["gemm2"], by_name["aten::addmm"], by_name["aten::mm"]):
        assert row["Python"] == line


def test_functions_under_a_thread_of_nobody_belong_to_the_main_one(tmp_path):
    made = Made()
    nested(made, "frames")
    for event in made.events:
        if event["cat"] == "python_function":
            event |= {"pid": 0, "tid": 0}
    kernels, _ = shown(made.write(tmp_path / "trace.json")).listings
    assert rows_of(kernels)["gemm"]["Python"] == "train.py:40 loss"


def test_a_long_table_says_what_it_leaves_out(tmp_path):
    made = Made()
    for step in range(3):
        begin = made.now
        for index in range(40):
            made.launch(f"kernel_{index}", 100)
        made.synchronise()
        made.span("user_annotation", f"ProfilerStep#{step}", begin, made.now - begin)
    kernels, operators = shown(made.write(tmp_path / "trace.json")).listings
    assert len(kernels.rows) == len(operators.rows) == listings.ROWS
    assert kernels.rest == "and 25 more, 62% of the device time"  # 25 of 40


@pytest.mark.parametrize("layout", [{}, {"indent": 1}, {"separators": (",", ":")}])
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_second_look_finds_what_the_first_did(tmp_path, layout, name):
    made = training(steps=6, kernels=800, **FULL)
    path = made.write(tmp_path / name, **layout)
    blocks = Blocks()
    trace = read_trace(path, blocks)
    begin, end = made.base + 100_000, made.base + 250_000
    found = look_again(path, blocks, [(begin, end)], trace.threads)
    wanted = [
        event
        for event in made.events
        if event["cat"] in ("cpu_op", "cuda_runtime", "user_annotation")
        and event["ts"] < end
        and event["ts"] + event["dur"] >= begin
    ]
    assert len(found.start) == len(wanted)
    assert sorted(found.start) == sorted(event["ts"] for event in wanted)
    assert {found.names[index] for index in found.name} == {event["name"] for event in wanted}
    assert found.threads == trace.threads


def test_a_second_look_at_a_damaged_file(tmp_path):
    document = training(steps=4, kernels=300).document()
    text = json.dumps(document).replace('"name": "aten::gemm_1"', '"name": "aten::gemm_1", "odd": NaN', 1)
    path = tmp_path / "trace.json"
    path.write_text(text[: int(len(text) * 0.9)])
    assert shown(path).timelines


def test_several_ranks_are_shown_by_the_steps_of_all(tmp_path):
    for rank in range(3):
        slow = {3: 60_000.0} if rank == 2 else {}
        made = training(steps=5, kernels=100, slow=slow, rank=rank, world_size=3, communicating=500)
        made.write(tmp_path / f"rank{rank}.json")
    found = diagnose_traces(tmp_path, picture=True)
    assert found.charts[0].title == "Where the mean step of each rank went"
    assert found.charts[0].x == [0.0, 1.0, 2.0]
    assert found.picture.timelines[1].title.startswith("The slowest step: step 4 of rank 2,")
    assert len(found.picture.listings) == 2


def test_a_trace_without_steps_is_shown_as_one(tmp_path):
    made = Made()
    for index in range(30):
        made.launch(f"op_{index}", 50, host=100)
    (timeline,) = shown(made.write(tmp_path / "trace.json")).timelines
    assert timeline.title == "The trace"


def test_a_step_that_is_too_large_is_shown_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "MOST_EVENTS", 200)
    path = training(steps=4, kernels=300).write(tmp_path / "trace.json")
    (summary,) = summarise([path])
    timeline = shown(path).timelines[0]
    assert timeline.length_us < 0.6 * summary.duration[1]
    assert "Shown is its middle part" in timeline.note


@pytest.mark.parametrize("device", [True, False])
def test_traces_of_one_side_only(tmp_path, device):
    made = training(steps=4, kernels=60, loading=3_000)
    on_device = ("kernel", "gpu_memcpy")
    made.events = [event for event in made.events if (event["cat"] in on_device) == device or event["cat"] == "x"]
    found = shown(made.write(tmp_path / "trace.json"))
    names = [one.name for one in found.timelines[0].lanes]
    assert any(name.startswith("stream") for name in names) == device
    assert any(name.startswith("main thread") for name in names) != device


def test_nothing_to_draw_is_no_error(tmp_path):
    path = write(
        tmp_path / "trace.json", {"traceEvents": [{"ph": "i", "name": "x", "ts": 1}, {"ph": "M", "name": "y"}]}
    )
    try:
        found = diagnose_traces(path, picture=True)
    except InputError:
        return
    assert found.picture.timelines == []


def test_a_picture_that_fails_hides_no_finding(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("no luck")

    path = training(steps=6, kernels=100, loading=60_000).write(tmp_path / "trace.json")
    monkeypatch.setattr(picture, "look_again", fail)
    found = diagnose_traces(path, picture=True)
    assert [finding.rule for finding in found.findings] == ["dataloader-bottleneck"]
    assert found.run.notes[-1] == "The timeline could not be drawn: RuntimeError: no luck."


def test_without_a_page_nothing_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "look_again", None)
    assert diagnose_traces(training(steps=4).write(tmp_path / "trace.json")).picture is None


SHORT = {
    "volta_sgemm_128x64_nn": "volta_sgemm_128x64_nn",
    "aten::add_": "aten::add_",
    "autograd::engine::evaluate_function: AddmmBackward0": "AddmmBackward0",
    "Memcpy HtoD (Pageable -> Device)": "Memcpy HtoD (Pageable -> Device)",
    "enumerate(DataLoader)#_Iter.__next__": "enumerate(DataLoader)#_Iter.__next__",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, int, 32>(cudnnTensorStruct, float*)": "bn_fw_tr_1C11_kernel_NCHW",
    """void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3> >
    (int, at::native::CUDAFunctor_add<float>, std::array)""": "vectorized_elementwise_kernel<CUDAFunctor_add>",
    """void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::BinaryFunctor<float, float,
    float, at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&)::{lambda(int)#1}>
    (int)""": "elementwise_kernel<MulFunctor>",
    """void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float,
    at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>,
    unsigned int, float, 4> >(int)""": "reduce_kernel<sum_functor>",
    """void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4>
    (cutlass::Params)""": "cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4",
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float, false>(int)": "kernel",
}


def test_an_imported_trace_shows_the_same_as_its_file(tmp_path):
    path = training(steps=5, kernels=100, slow={3: 40_000.0}, **FULL).write(tmp_path / "trace.json")
    import_traces([path], tmp_path / "run")
    of_import, of_file = shown(tmp_path / "run"), shown(path)
    moved = [replace(one, source=str(path)) for one in of_import.timelines]  # only where to cut it differs
    assert replace(of_import, timelines=moved) == of_file


def real(path):
    found = TRACES / path
    if not found.exists():
        pytest.skip(f"{found} is not here")
    return found


REAL = [
    "kineto_resnet50/nw0_worker0.1623143089861.pt.trace.json.gz",
    "kineto_resnet50/old_list_form_nw0.pt.trace.json.gz",
    "hta/trace_diff/test/test.json.gz",
    "hta/mtia_trace_single_rank/mtia_rank_0.json.gz",
    "hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "param_dlrm",
    "tracelens/train_resnet18.json.gz",
]


@pytest.mark.parametrize("path", REAL)
def test_real_traces_stay_small_and_their_lanes_agree_with_the_attribution(path):
    found = diagnose_traces(real(path), picture=True)
    small = render(found, "html")
    plain = render(replace(found, picture=None), "html")
    assert len(small.encode()) - len(plain.encode()) < 170_000
    assert not [note for note in found.run.notes if "drawn" in note]
    for timeline in found.picture.timelines:
        for idle in (one for one in timeline.lanes if one.name.startswith("device idle")):
            streams = [one for one in timeline.lanes if one.name.startswith("stream")]
            if len(streams) == 1:
                assert idle.busy_us + streams[0].busy_us == pytest.approx(timeline.length_us, rel=1e-3)


@pytest.mark.parametrize("name", SHORT)
def test_short_names(name):
    assert short(" ".join(name.split()).replace("> (", ">(")) == SHORT[name]


@given(st.text(max_size=500))
def test_any_name_has_a_short_form(name):
    assert len(short(name)) <= LONGEST


def test_functions_that_only_call_another_leave_their_lane_to_it(tmp_path):
    made = training(steps=4, kernels=60)
    for step in range(4):
        marks = [event for event in made.events if event["name"] == f"ProfilerStep#{step + 1}"]
        begin, length = marks[0]["ts"], marks[0]["dur"]
        made.span("python_function", "train.py(1): main", begin - 10, length + 20)
        made.span("python_function", "train.py(9): wrapper", begin + 10, 0.6 * length)
        made.span("python_function", "train.py(20): work", begin + 20, 0.6 * length - 20)
        made.span("python_function", "train.py(30): part", begin + 30, 0.3 * length)
    timeline = shown(made.write(tmp_path / "trace.json")).timelines[0]
    lane_of_script = lane_of(timeline, "main thread, the script's functions")
    assert [timeline.names[label] for label in lane_of_script.label] == ["train.py:20 work", "train.py:30 part"]
    assert lane_of_script.level == [0, 1]


EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "ph": st.just("X"),
            "cat": st.sampled_from(
                ["cpu_op", "kernel", "gpu_memcpy", "cuda_runtime", "python_function", "user_annotation", "odd"]
            ),
            "name": st.sampled_from(
                [
                    "aten::mm",
                    "train.py(3): f",
                    "ProfilerStep#1",
                    "ProfilerStep#2",
                    "Optimizer.step#SGD.step",
                    "ncclKernel",
                    "enumerate(DataLoader)#x",
                    "cudaLaunchKernel",
                    "void k<int>(",
                    "<script>",
                    "",
                    "\ud800",
                ]
            ),
            "pid": st.sampled_from([0, 1, "Spans"]),
            "tid": st.sampled_from([0, 1, "7", -3, ""]),
            "ts": st.one_of(st.integers(0, 300), st.floats(0, 1e12)),
            "dur": st.one_of(st.integers(-5, 300), st.floats(0, 1e6)),
            "args": st.fixed_dictionaries(
                {},
                optional={
                    "correlation": st.integers(0, 9),
                    "stream": st.integers(0, 3),
                    "device": st.integers(0, 1),
                    "Sequence number": st.one_of(st.integers(-1, 5), st.none(), st.text(max_size=3)),
                    "Fwd thread id": st.integers(0, 2),
                    "Call stack": st.sampled_from(["train.py(3): f;x", ";;", "torch/a.py(1): b", "a" * 5000]),
                },
            ),
        }
    ),
    min_size=1,
    max_size=60,
)


@given(EVENTS)
def test_any_events_can_be_drawn(tmp_path_factory, events):
    path = write(tmp_path_factory.mktemp("any") / "trace.json", {"traceEvents": events})
    try:
        found = diagnose_traces(path, picture=True)
    except InputError:
        return
    assert not [note for note in found.run.notes if "drawn" in note]
    for timeline in found.picture.timelines:
        for one in timeline.lanes:
            assert min(one.start) >= 0
            assert min(one.length) >= 0
    render(found, "html").encode()
