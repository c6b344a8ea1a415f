"""`tracelyze compare`: what changed between two traces or two runs, in every format, with exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.kineto.made import Made, training
from tests.reports.chromium import BINARY, Chromium
from tracelyze.analyzers.comparing import compare, headline, runs
from tracelyze.analyzers.comparing.noise import blocks, margin, quantile, significance
from tracelyze.analyzers.kineto.attribution.kernel_classes import class_of
from tracelyze.analyzers.recorded import run_directory
from tracelyze.cli.app import app
from tracelyze.comparison import Change, Comparison, FindingChange, Section, SettingChange
from tracelyze.errors import InputError
from tracelyze.reports import comparison as reports
from tracelyze.reports.comparison import words
from tracelyze.testing import Workshop

SAMPLES = Path(__file__).parents[1] / "sample_traces"
FOLDER = Path(os.environ.get("TRACELYZE_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
real = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no real traces in {FOLDER}; set TRACELYZE_TRACES")


def compared(tmp_path: Path, before: Made, after: Made) -> Comparison:
    return compare(before.write(tmp_path / "a.json"), after.write(tmp_path / "b.json"))


def change(comparison: Comparison, section: str, name: str):
    return next(one for one in comparison.section(section) if one.name == name)


def test_the_loader_explains_what_it_costs(tmp_path):
    found = compared(tmp_path, training(steps=8), training(steps=8, loading=8_000, workers=False))
    loader = change(found, "causes", "idle: waiting for the data loader")
    assert (loader.before, loader.after, loader.significance) == (None, 8.0, "more") or loader.before == 0.0
    assert found.verdict == "slower"
    assert "waiting for the data loader +8 ms" in found.headline
    assert [(one.rule, one.fate) for one in found.findings] == [("dataloader-bottleneck", "new")]
    step = change(found, "step", "step")
    parts = found.section("causes")
    assert sum(one.difference for one in parts) == pytest.approx(step.difference, abs=0.01)


def test_turned_around_everything_is_turned_around(tmp_path):
    fast, slow = training(steps=8), training(steps=8, communicating=5_000, copying=3_000)
    there, back = compared(tmp_path, fast, slow), compared(tmp_path, slow, fast)
    assert (there.verdict, back.verdict) == ("slower", "faster")
    # What says nothing of its copies' memory cannot have had pageable copies fixed.
    for found, fate in ((there, "new"), (back, "fixed")):
        fates = {one.rule: one.fate for one in found.findings}
        assert fates == {"exposed-communication": fate, "pageable-copies": "unknown"}
    for section in ("causes", "classes", "kernels"):
        forth = {one.name: one.difference for one in there.section(section)}
        assert forth == {one.name: -one.difference for one in back.section(section)}


def test_the_same_trace_is_no_difference(tmp_path):
    found = compared(tmp_path, training(steps=8), training(steps=8))
    assert found.verdict == "same"
    assert found.settings == []
    assert all(one.significance in ("noise", "unknown") for part in found.sections for one in part.changes)


def varying(lengths: list[float]) -> Made:
    """A step per length: one kernel of that many microseconds, for which the host waits."""
    made = Made()
    for step, length in enumerate(lengths):
        begin = made.now
        made.launch("gemm", length)
        made.synchronise()
        made.span("user_annotation", f"ProfilerStep#{step}", begin, made.now - begin)
    return made


def test_steps_that_vary_more_than_they_differ_are_noise(tmp_path):
    found = compared(
        tmp_path, varying([9_000, 11_000, 10_000, 9_500, 10_500]), varying([11_200, 9_300, 10_400, 9_000, 11_000])
    )
    step = change(found, "step", "step")
    assert step.difference == pytest.approx(0.18, abs=0.01)
    assert (found.verdict, step.significance) == ("same", "noise")
    assert "noise" in found.lead


def test_slow_steps_do_not_hide_a_difference(tmp_path):
    found = compared(
        tmp_path, varying([10_000, 10_100] * 4), varying([8_000, 8_100, 8_000, 8_100, 8_000, 30_000, 8_100, 8_000])
    )
    assert found.verdict == "same"
    assert "Without its slow steps it is" in found.lead
    assert any("half as long again" in note for note in found.notes)


def test_too_few_steps_for_noise_are_said_to_be(tmp_path):
    found = compared(tmp_path, varying([10_000, 10_000]), varying([20_000, 20_000]))
    assert found.verdict == "unknown"
    assert "may be chance" in found.lead


def test_kernels_with_other_names_are_compared_by_operator_and_class(tmp_path):
    def trace(kernel: str, length: float) -> Made:
        made = Made()
        for step in range(5):
            begin = made.now
            for _ in range(10):
                start = made.now
                made.launch(kernel, length)
                made.events = [one for one in made.events if one["name"] != f"aten::{kernel}"]
                made.span("cpu_op", "aten::linear", start, made.now - start)
                made.launch("shared_elementwise_kernel", 50)
            made.synchronise()
            made.span("user_annotation", f"ProfilerStep#{step}", begin, made.now - begin)
        return made

    found = compared(tmp_path, trace("ampere_sgemm_128x64_nn", 400), trace("volta_sgemm_64x64_nt", 900))
    row = change(found, "kernels", "GEMM kernels of aten::linear, by other names")
    assert (row.before, row.after) == (4.0, 9.0)
    assert "A: ampere_sgemm_128x64_nn; B: volta_sgemm_64x64_nt" in row.detail
    assert change(found, "classes", "GEMM kernels").difference == 5.0
    assert change(found, "operators", "aten::linear").difference == 5.0
    assert change(found, "kernels", "shared_elementwise_kernel").difference == 0.0


def test_several_ranks_are_one_side(tmp_path):
    for side, loading in (("a", 0), ("b", 6_000)):
        (tmp_path / side).mkdir()
        for rank in range(2):
            made = training(steps=6, rank=rank, world_size=2, loading=loading, communicating=500)
            made.write(tmp_path / side / f"rank{rank}.json.gz")
    found = compare(tmp_path / "a", tmp_path / "b")
    assert (found.a.ranks, found.a.steps, found.verdict) == (2, 6, "slower")
    assert "waiting for the data loader +6 ms" in found.headline


def test_a_rank_that_is_late_is_what_the_others_wait_for(tmp_path):
    from tests.kineto.test_collectives import job

    for side, late in (("a", 0.0), ("b", 5_000.0)):
        (tmp_path / side).mkdir()
        job(tmp_path / side, lambda step, rank, late=late: late * (rank == 2))
    found = compare(tmp_path / "a", tmp_path / "b")
    waits = change(found, "causes", "waiting for other ranks")
    assert waits.difference == pytest.approx(0.75 * 5, abs=0.3)
    assert waits.significance == "more"


def test_imported_traces_compare_like_the_files(tmp_path):
    from tracelyze.analyzers.kineto.reading.importer import import_traces

    one, two = (training(steps=6, loading=n).write(tmp_path / f"{n}.json") for n in (0, 6_000))
    import_traces([one], tmp_path / "run")
    direct, imported = compare(one, two), compare(tmp_path / "run", two)
    assert imported.headline == direct.headline
    assert [s.changes for s in imported.sections] == [s.changes for s in direct.sections]


def test_traces_without_a_device_are_compared_by_the_host(tmp_path):
    sides = []
    for number, loading in enumerate((1_000, 20_000)):
        made = training(steps=8, loading=loading, launch=100)
        made.events = [one for one in made.events if one["cat"] in ("cpu_op", "user_annotation")]
        sides.append(made.write(tmp_path / f"{number}.json"))
    found = compare(*sides)
    assert found.verdict == "slower"
    assert "waiting for the data loader +19 ms" in found.headline + found.lead


def test_a_run_and_its_twin_with_one_line_missing():
    found = compare(SAMPLES / "healthy", SAMPLES / "missing-zero-grad")
    fates = {one.rule: one.fate for one in found.findings}
    assert fates["missing-zero-grad"] == "new"
    assert found.headline == "New in B: Gradients are never cleared: 239 of 240 steps reused old gradients"
    assert found.lead.startswith("Also new: loss-divergence")
    assert "per step (" in found.lead
    assert change(found, "loss", "training loss").significance == "more"
    assert [one.name for one in found.settings] == ["command line"]


def test_runs_of_two_lengths_are_compared_where_both_have_steps_and_at_their_ends(monkeypatch) -> None:
    make = Workshop()
    decay = [2 * 0.99**at for at in range(400)]
    short = {name: values[:100] for name, values in make.steps().items()} | {"loss": [1.5 * one for one in decay[:100]]}
    schedules = [{"step": 0, "scheduler": 0, "name": "CosineAnnealingLR", "inner": False, "base_lr": 0.1}]
    sides = [
        make.run(
            make.process(steps, evals=make.evals(4, every), more={"schedules": [schedules[0] | {"horizon": length}]})
        )
        for steps, every, length in ((make.steps() | {"loss": decay}, 100, 400), (short, 25, 100))
    ]
    monkeypatch.setattr(run_directory, "load", lambda path: sides[int(str(path))])
    found = compare("0", "1")
    rows = {one.name: (one.before, one.after) for one in found.section("loss")}
    assert rows["training loss"][1] == pytest.approx(1.5 * rows["training loss"][0], rel=0.01)
    assert rows["training loss at its end"][0] == pytest.approx(decay[380], rel=0.01)
    assert rows["training loss at its end"][1] == rows["training loss"][1]
    assert "validation loss at its end" in rows
    assert found.notes[0].startswith("A made 400 steps, B 100. Their losses are compared over the first 100 of both")
    assert ("schedule: length in its steps", "400", "100") in [
        (one.name, one.before, one.after) for one in found.settings
    ]
    assert "its training loss is 50% higher" in f"{found.headline} {found.lead}"
    assert found.other_loss == pytest.approx(0.5, abs=0.01)
    assert words.speed(found) != "ok"
    assert "matter less" not in reports.render(found, "text").partition("The loss")[2].partition("Findings")[0]


def test_runs_of_one_length_say_it_once() -> None:
    make = Workshop()
    one = runs.sections(make.run(make.process()), make.run(make.process()))[-1]
    assert [row.name for row in one.changes] == ["training loss", "validation loss"]
    assert one.about == runs.LOSS_ABOUT


def test_a_run_that_waits_for_its_data():
    found = compare(SAMPLES / "healthy", SAMPLES / "dataloader-bottleneck")
    assert found.verdict == "slower"
    # Which of the two comes first depends on how grave the wait was where the samples were recorded.
    said = f"{found.headline} {found.lead}"
    assert re.search(r"New in B: (Training waits for data|dataloader-bottleneck)", said)
    assert re.search(r"B takes [\d.]+ times as long per step \([\d.]+ → [\d.]+ ms\): waiting for the data loader", said)
    settings = {one.name: (one.before, one.after) for one in found.settings}
    assert settings["optimizer: class"] == ("SGD", "Adam")
    assert settings["optimizer: learning rate"] == ("0.05", "0.001")
    assert settings["training loader: dataset"] == ("TensorDataset", "Tones")
    assert [name for name in settings if name.startswith("other loader")] == ["other loader"]  # only A has one
    assert settings["other loader"] == ("TensorDataset", "none")


def test_a_headline_fits_and_its_reasons_are_not_lost(tmp_path):
    """However many parts of a step explain the difference, and however long a new finding's title is."""
    step = Change("step", 100.0, 200.0, "ms", 1.0, "more")
    names = ("idle: waiting for the data loader", "idle: host inside communication calls", "communication, not hidden")
    parts = [Change(name, 0.0, 40.0 - place, "ms", 1.0, "more") for place, name in enumerate(names)]
    grave = FindingChange("a-rule", "new", "x" * 90, "critical")
    for findings in ([], [grave]):
        first, lead = headline.headline(step, [Section("causes", "", "", parts)], findings)
        assert len(first) <= headline.LONGEST
        assert all(name in first + lead for name in names)
    assert first == "B has a new fault: a-rule"


def test_a_difference_without_reasons_names_what_else_differs():
    step = Change("step", 100.0, 200.0, "ms", 1.0, "more")
    rate = SettingChange("optimizer", "optimizer: learning rate", "0.1", "0.2")
    _, lead = headline.headline(step, [], [])
    assert lead == "No part of a step that was recorded explains the difference."
    _, lead = headline.headline(step, [], [], [SettingChange("command", "command line", "a", "b"), rate, rate])
    assert lead.endswith("explains the difference, but these differ: the command and the optimizer.")


def test_a_table_has_no_empty_column_and_small_changes_no_sign():
    found = compare(SAMPLES / "healthy", SAMPLES / "missing-zero-grad")
    found.section("recorded").append(Change("a small change", 1000.0, 999.9, "MiB", 1.0, "noise"))
    page = reports.render(found, "html")
    loss = page[page.index('id="loss"') : page.index('id="findings"')]
    assert ">Bar<" not in loss
    assert ">Meaning<" not in loss
    assert "under 0.1%" in page
    for name in ("html", "markdown", "text"):
        assert not re.search(r"[ >]-under", reports.render(found, name))
    for line in reports.render(found, "text").splitlines():
        assert not re.search(r"\d (?:ms|KiB|MiB)[+-]", line)  # columns keep apart


@pytest.mark.parametrize("name", ["html", "markdown", "json", "text"])
def test_every_format_says_the_headline(name):
    found = compare(SAMPLES / "healthy", SAMPLES / "dataloader-bottleneck")
    said = re.sub(r"\\|&gt;|>|&quot;|\s+", " ", reports.render(found, name))
    assert "waiting for the data loader" in said
    if name == "json":
        data = json.loads(reports.render(found, name))
        assert (data["schema_version"], data["verdict"]) == (1, "slower")
        assert data["sections"][0]["changes"][0]["difference"] == pytest.approx(found.section("recorded")[0].difference)
    if name == "html":
        page = reports.render(found, name)
        assert "script-src &#39;sha256-" in page
        assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)


def test_runs_are_drawn_over_each_other():
    found = compare(SAMPLES / "healthy", SAMPLES / "missing-zero-grad")
    loss = found.charts[0]
    assert (loss.title, [line.name for line in loss.lines]) == ("Training loss", ["A", "B"])
    ends = [next(value for value in reversed(line.y) if value is not None) for line in loss.lines]
    assert ends[0] < 0.1 < 100 < ends[1]  # one converged, the other diverged
    assert loss.log_y
    page = reports.render(found, "html")
    assert page.count("<figcaption><b>Training loss</b>") == 1
    assert json.loads(reports.render(found, "json"))["charts"][0]["title"] == "Training loss"


@pytest.mark.browser
@pytest.mark.skipif(BINARY is None, reason="no chromium binary is installed")
def test_the_page_in_a_browser(tmp_path):
    pages = []
    for number, twin in enumerate(("dataloader-bottleneck", "missing-zero-grad")):
        found = compare(SAMPLES / "healthy", SAMPLES / twin)
        pages.append(reports.write(found, tmp_path / f"{number}.html"))
    found = compared(tmp_path, training(steps=8), training(steps=8, loading=8_000))
    pages.append(reports.write(found, tmp_path / "traces.html"))
    with Chromium() as browser:
        for page in pages:
            for width in (380, 1200):
                browser.open(page, width=width)
                assert browser.console == []
                assert browser.requests == [page.as_uri()]
                browser.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
                assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert browser.evaluate("document.querySelector('.lead, h1').innerText")


def test_hostile_names_stay_text(tmp_path):
    evil = "<script>alert(1)</script>"
    sides = [training(steps=4), training(steps=4)]
    for made in sides:
        made.host(evil, 10)
        for one in made.events:
            if one["name"] == "gemm_1":
                one["name"] = evil + "\x1b[31m"
    found = compared(tmp_path, *sides)
    assert "<script>alert" not in reports.render(found, "html")
    assert "\x1b" not in reports.render(found, "text")


def test_exit_codes_and_files(tmp_path):
    run = CliRunner().invoke
    fast = training(steps=8).write(tmp_path / "fast.json")
    slow = training(steps=8, loading=8_000).write(tmp_path / "slow.json")
    ok = run(app, ["compare", str(fast), str(slow), "-o", str(tmp_path / "page.html"), "--fail-on", "slower:90%"])
    assert (ok.exit_code, (tmp_path / "page.html").exists()) == (0, True)
    assert ok.stdout.startswith("▲ B is ")
    assert run(app, ["compare", str(fast), str(slow), "--fail-on", "slower:10%"]).exit_code == 1
    assert run(app, ["compare", str(fast), str(slow), "--fail-on", "new:critical"]).exit_code == 0
    assert run(app, ["compare", str(fast), str(slow), "--fail-on", "new"]).exit_code == 1
    assert run(app, ["compare", str(slow), str(fast), "--fail-on", "slower", "--fail-on", "new"]).exit_code == 0
    assert json.loads(run(app, ["compare", str(fast), str(slow), "-f", "json"]).stdout)["verdict"] == "slower"
    for wrong in ("faster", "slower:ten%", "new:bad"):
        assert isinstance(run(app, ["compare", str(fast), str(slow), "--fail-on", wrong]).exception, InputError)


def test_what_cannot_be_compared_is_said_in_one_line(tmp_path):
    trace = training(steps=4).write(tmp_path / "trace.json")
    run = shutil.copytree(SAMPLES / "healthy", tmp_path / "run")
    for pair in ((trace, run), (run, trace), (trace, tmp_path / "nothing"), (tmp_path, tmp_path / "nothing")):
        with pytest.raises(InputError) as refused:
            compare(*pair)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "operator", "kind"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "", "GEMM"),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "", "GEMM"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32", "", "GEMM"),
        ("triton_tem_fused_addmm_3", "", "GEMM"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16>", "", "GEMM"),
        ("void implicit_convolve_sgemm<float, float, 1024>", "", "convolution"),
        ("igemm_bwd_gtcx3_nhwc_bf16_bx0", "", "convolution"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", "", "attention"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", "", "normalisation"),
        ("void at::native::vectorized_elementwise_kernel<4, AddFunctor<float>>", "", "elementwise"),
        ("void at::native::reduce_kernel<512, 1, ReduceOp<float>>", "", "reduction"),
        ("triton_poi_fused_add_1", "", "elementwise"),
        ("triton_red_fused_native_layer_norm_2", "", "normalisation"),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor>", "", "optimizer"),
        ("mystery", "aten::addmm", "GEMM"),
        ("mystery", "", "other"),
    ],
)
def test_classes_of_kernels(name, operator, kind):
    assert class_of(name, operator) == kind


def test_quantiles_of_students_t():
    # Tables: 3.182, 2.776, 2.571, 2.228, 2.042, 1.960
    for freedom, value in ((3, 3.182), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042), (1e9, 1.960)):
        assert quantile(freedom) == pytest.approx(value, rel=0.01)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.integers(4, 200), st.integers(4, 200))
def test_equal_means_are_noise_in_most_cases(seed, one, two):
    """The rate is 5%; of 200 draws 25 or more are called different with a probability of 2e-5 (binomial)."""
    random = np.random.default_rng(seed)
    called = 0
    for _ in range(200):
        a, b = random.normal(10, 1, one), random.normal(10, 2, two)
        noise = margin(blocks(a), blocks(b))
        called += significance(float(b.mean() - a.mean()), noise, 0.0) != "noise"
    assert called < 30


@real
def test_two_gpus_of_different_generations():
    """77.5 to 124.1 ms per step; overlap 47.03 to 70.91%, idle 16.20 to 3.58% over all but the last step, so that
    with all six steps both may differ by a percentage point."""
    found = compare(FOLDER / "hta" / "trace_diff" / "control", FOLDER / "hta" / "trace_diff" / "test")
    step = change(found, "step", "step")
    assert (step.before, step.after) == (pytest.approx(77.53, abs=0.05), pytest.approx(124.11, abs=0.05))
    assert found.headline.startswith("B is 60% slower per step (77.5 → 124 ms): GEMM kernels +2")
    hidden = change(found, "step", "communication hidden behind computation")
    assert (hidden.before, hidden.after) == (pytest.approx(47.03, abs=1), pytest.approx(70.91, abs=1))
    idle = change(found, "step", "device idle, first to last activity")
    assert (idle.before, idle.after) == (pytest.approx(16.20, abs=1), pytest.approx(3.58, abs=1))
    assert [(one.rule, one.fate) for one in found.findings] == [("exposed-communication", "fixed")]
    assert ("device", "NVIDIA A100-PG509-200", "Tesla V100-SXM2-16GB") in {
        (one.name, one.before, one.after) for one in found.settings
    }


@real
def test_more_loader_workers_explain_the_difference():
    resnet = FOLDER / "kineto_resnet50"
    found = compare(
        resnet / "nw0_worker0.1623143089861.pt.trace.json.gz", resnet / "nw4_worker0.1623212756351.pt.trace.json.gz"
    )
    assert found.headline.startswith("B is 20% faster per step (175 → 140 ms): idle: waiting for the data")
    assert change(found, "classes", "convolution kernels").significance == "noise"
    assert ("dataloader-bottleneck", "fixed") in {(one.rule, one.fate) for one in found.findings}


def test_the_headline_goes_by_keys_whatever_the_rows_are_called() -> None:
    causes = [
        Change("Rechnen", 10.0, 20.0, "ms", significance="more", key="computing"),
        Change("Daten", 1.0, 4.0, "ms", significance="more", key="loader-wait"),
    ]
    classes = [
        Change("Matmul", 8.0, 17.0, "ms", significance="more"),
        Change("Kopien", 1.0, 9.0, "ms", significance="more", key="copy"),
    ]
    usual = Change("ohne langsame", 10.0, 20.0, "ms", significance="more", key="usual-step")
    sections = [
        Section(name, "", "", part) for name, part in (("causes", causes), ("classes", classes), ("step", [usual]))
    ]
    assert [one.name for one in headline.drivers(13.0, sections)] == ["Matmul", "Daten"]
    step = Change("Schritt", 11.0, 11.1, "ms", 1.0, "noise", key="step")
    assert "Without its slow steps it takes 2.0 times as long" in headline.headline(step, sections, [])[1]


def test_rows_that_are_asked_for_have_keys() -> None:
    found = compare(SAMPLES / "healthy", SAMPLES / "dataloader-bottleneck")
    keys = {one.key for one in found.section("recorded")}
    assert keys >= {"step", "loader-wait", "recording", "memory"}
