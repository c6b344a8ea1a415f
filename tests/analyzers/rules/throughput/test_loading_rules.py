"""Rules about waiting for data, with their healthy look-alikes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

COUNT = 400


def loading(make, wait: float, seconds: float, samples=None, cpus: int = 8, **loader):
    steps = make.steps() | {"loader_wait": [wait] * COUNT, "seconds": [seconds] * COUNT}
    settings = {"loader": 0, "dataset": "Images", "length": 100, "batch_size": 32, "num_workers": 0, "site": 2}
    steps |= {"batch_size": [loader["batch_size"]] * COUNT} if "batch_size" in loader else {}
    return make.process(steps, loaders=[settings | loader], samples=samples, facts={"cpus": cpus})


def test_dataloader_bottleneck(make) -> None:
    _, _, finding = make.check("dataloader-bottleneck", loading(make, 0.04, 0.06))
    assert (finding.confidence, finding.location.line) == ("likely", 30), (
        "whether others held the processors is unknown"
    )
    times = [0.05 * index for index in range(COUNT)]
    alone = {"time": times, "delayed": [0.0] * COUNT}
    _, _, finding = make.check("dataloader-bottleneck", loading(make, 0.04, 0.06, samples=alone))
    assert finding.confidence == "certain"
    busy = {"time": times, "delayed": [0.15 * time for time in times]}
    _, _, crowded = make.check("dataloader-bottleneck", loading(make, 0.04, 0.06, samples=busy))
    assert crowded.confidence == "likely"
    assert "num_workers=8" in finding.fix_code
    assert finding.cost.share == pytest.approx(0.6, abs=0.1)
    assert {"num_workers", "pin_memory", "dataset"} <= {evidence.name for evidence in finding.evidence}


@pytest.mark.parametrize(
    ("wait", "seconds", "severity"),
    [
        (0.04, 0.06, "critical"),  # 1.25 ms a sample
        (0.0045, 0.006, "info"),  # 0.14 ms: a light transform, and 2 s of the run
        (0.0060, 0.008, "warning"),  # 0.19 ms
    ],
)
def test_a_wait_for_light_samples_is_a_note(make, wait, seconds, severity) -> None:
    _, _, finding = make.check("dataloader-bottleneck", loading(make, wait, seconds))
    assert finding.severity == severity


def test_a_wait_for_light_samples_that_costs_minutes_is_more(make) -> None:
    """The same time for a sample, in batches of two sizes."""
    for size, severity in ((2048, "critical"), (256, "info")):
        light = loading(make, size * 140e-6, size * 200e-6, batch_size=size, length=10**6)
        assert make.check("dataloader-bottleneck", light)[2].severity == severity


def test_workers_of_a_dataset_with_a_generator_of_its_own_need_seeds(make) -> None:
    """Torch seeds random and numpy.random in each worker; a generator that the dataset holds is copied as it is."""
    process = loading(make, 0.04, 0.06)
    fetch = {
        "time": 0.0,
        "step": 0,
        "loader": 0,
        "epoch": 0,
        "worker": None,
        "batches": 4,
        "start": "a1",
        "second": "b2",
    }
    for moved, seeds in (("own", True), ("numpy", False)):
        tables = make.process(more={"fetches": [fetch | {"moved": moved}]}).tables
        _, _, finding = make.check(
            "dataloader-bottleneck", replace(process, tables={**process.tables, "fetches": tables["fetches"]})
        )
        assert ("worker_init_fn=worker_init_fn" in finding.fix_code) is seeds
        assert ("draw the same numbers" in finding.fix) is seeds


@pytest.mark.parametrize(
    ("kind", "source", "example"),
    [
        ("NpzFile", "self.data = np.load(path)", "self.data = dict(np.load(path))  # the arrays themselves, read once"),
        ("NpzFile", "with_it(self, path)", "self.data = dict(np.load(path))  # the arrays themselves, read once"),
        ("File", "self.data = h5py.File(path)", "    self.data = h5py.File(path)"),
    ],
)
def test_a_file_that_is_held_open_is_not_shared_by_workers(make, kind: str, source: str, example: str) -> None:
    made = {"site": 5, "role": "dataloader", "file": "a.py", "line": 72, "source": "l = DataLoader(d, batch_size=32)"}
    opens = {"site": 6, "role": "opens", "file": "a.py", "line": 30, "source": source}
    places = [one | {"function": "f", "excerpt_line": one["line"], "excerpt": one["source"]} for one in (made, opens)]
    loader = {"made_at": 5, "open_file": "data", "open_kind": kind, "opened_at": 6}
    process = loading(make, 0.04, 0.06, **loader)
    tables = make.process(sites=places).tables
    process = replace(process, tables={**process.tables, "sites": tables["sites"]})
    finding = make.check("dataloader-bottleneck", process)[2]
    assert finding.diff is None, "forked workers would share the position in the file"
    assert finding.location.line == 30
    assert finding.fix_code.endswith(example)
    assert "position" in finding.fix


def test_the_line_of_the_dataset_that_is_slow(make) -> None:
    def looked(*sites: int, cpus: int = 2, wait: float = 0.58, **loader: object):
        lines = [
            (1, 41, "main", "loss.backward()"),
            (2, 30, "main", "for x, y in loader:"),
            (5, 9, "__getitem__", "def __getitem__(self, index):"),
            (6, 12, "__getitem__", "row = json.loads(line)"),
        ]
        seen = {"time": [0.5 * index for index in range(len(sites))], "site": list(sites)}
        process = loading(make, wait, 0.6, samples=seen, cpus=cpus, **({"read_by": 5, "made_at": 2} | loader))
        table = [
            {"site": s, "role": "seen", "file": "t.py", "line": n, "function": f, "source": t} for s, n, f, t in lines
        ]
        sites_table = make.process(sites=table).tables["sites"]
        process = replace(process, tables={**process.tables, "sites": sites_table})
        return make.check("dataloader-bottleneck", process)[2]

    finding = looked(6, 6, 6, 1, 6, 6)
    assert "mostly in __getitem__, seen most often at line 12: row = json.loads(line)." in finding.summary
    assert finding.location.line == 12  # two workers would leave most of the wait
    assert finding.fix.startswith("Make samples cheaper: ")
    assert "Besides, at line 30 load in 2 worker processes" in finding.fix, "the line that the example changes"
    assert (finding.diff, finding.setting) == (None, None), "an edit of another line than the one that is named"
    many = looked(6, 6, 6, 1, 6, 6, cpus=16, wait=0.4)  # workers would leave a tenth of it
    assert ("line 12" in many.summary, many.location.line, many.seen_at.line) == (True, 30, 12)
    for sites in ((2, 2, 2, 2, 2), (6, 6), (1, 1, 1, 6, 1)):  # the loop; too few looks; no line stands out
        unknown = looked(*sites)
        assert "made by line 9: def __getitem__(self, index)." in unknown.summary
        assert unknown.location.line == 30
    assert "A sample takes" not in looked(*[2] * 5, read_by=None).summary


def test_dataloader_bottleneck_with_too_few_workers_and_with_a_stream(make) -> None:
    assert make.check("dataloader-bottleneck", loading(make, 0.04, 0.06, num_workers=2))[2].confidence == "likely"
    assert make.check("dataloader-bottleneck", loading(make, 0.04, 0.06, iterable=True))[2].confidence == "possible"


def test_batches_of_slow_workers_come_in_bursts(make) -> None:
    burst = [0.097 if index % 2 else 0.001 for index in range(COUNT)]
    steps = make.steps() | {"loader_wait": burst, "seconds": [wait + 0.002 for wait in burst]}
    settings = {"loader": 0, "dataset": "Images", "length": 100, "batch_size": 32, "num_workers": 2, "site": 2}
    _, _, finding = make.check("dataloader-bottleneck", make.process(steps, loaders=[settings]))
    assert "num_workers=8" in finding.fix_code
    hiccups = [2.0 if index % 60 == 59 else 0.001 for index in range(COUNT)]
    rare = make.steps() | {"loader_wait": hiccups, "seconds": [wait + 0.03 for wait in hiccups]}
    assert make.check("dataloader-bottleneck", make.process(rare, loaders=[settings]))[0] == "passed"


def test_a_few_long_waits_are_no_slow_loader(make) -> None:
    """Six pauses of the machine that happened to meet the loader: two thirds of the time, in six steps of 400."""
    waits = [5.0 if index in (40, 90, 160, 165, 290, 370) else 0.004 for index in range(COUNT)]
    steps = make.steps() | {"loader_wait": waits, "seconds": [wait + 0.03 for wait in waits]}
    assert make.check("dataloader-bottleneck", make.process(steps))[0] == "passed"
    pauses = [5.0 if index in (40, 160, 165, 290) else 0.06 for index in range(COUNT)]
    slow = make.steps() | {"loader_wait": [0.04] * COUNT, "seconds": pauses}
    assert make.check("dataloader-bottleneck", make.process(slow))[0] == "fired"


def test_a_stream_must_wait_most_of_its_time(make) -> None:
    assert make.check("dataloader-bottleneck", loading(make, 0.025, 0.06))[0] == "fired"
    assert make.check("dataloader-bottleneck", loading(make, 0.025, 0.06, iterable=True))[0] == "passed"


def test_dataloader_bottleneck_where_no_core_is_left(make) -> None:
    process = loading(make, 0.05, 0.06, num_workers=8)
    process.facts = {"cpus": 8}
    _, _, finding = make.check("dataloader-bottleneck", process)
    assert "cheaper" in finding.fix


def test_dataloader_bottleneck_of_a_new_iterator_for_every_step(make) -> None:
    columns = make.steps() | {"loader_wait": [0.04] * COUNT, "seconds": [0.06] * COUNT, "loader_first": [True] * COUNT}
    _, _, finding = make.check("dataloader-bottleneck", make.process(columns))
    assert "iterator" in finding.fix


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [
        (0.001, 0.05),  # little waiting
        (0.001, 0.0015),  # tensors in memory: 31 us per sample
        (0.0015, 0.003),  # less than handing a batch over costs
    ],
)
def test_dataloader_bottleneck_is_silent(make, wait, seconds) -> None:
    assert make.check("dataloader-bottleneck", loading(make, wait, seconds))[0] == "passed"


def test_the_way_from_a_worker_on_busy_cores_is_no_slow_loading(make) -> None:
    assert make.check("dataloader-bottleneck", loading(make, 0.0054, 0.0068, num_workers=1))[0] == "passed"
    assert make.check("dataloader-bottleneck", loading(make, 0.022, 0.0234, num_workers=1))[0] == "fired"


def crowded(own: float, workers: int = 0, theirs: float = 0.0, work: float = 0.1) -> dict[str, object]:
    """Samples of a training of 20 s whose thread found no free processor for the share `own`, its workers `theirs`."""
    time = np.arange(0.0, 21.0)
    return {
        "time": time.tolist(),
        "delayed": (own * time).tolist(),
        "cpu_seconds": (0.2 * time).tolist(),
        "children": [workers] * len(time),
        "children_delayed": (workers * theirs * time).tolist(),
        "children_cpu_seconds": (workers * work * time).tolist(),
    }


@pytest.mark.parametrize(
    ("wait", "seconds", "settings", "samples", "status"),
    [
        (0.004, 0.008, {}, crowded(0.0), "fired"),  # 125 us per sample, on processors of its own
        (0.004, 0.008, {}, crowded(0.75), "passed"),  # as above, but others ran for three quarters of the time
        (0.04, 0.06, {}, crowded(0.75), "fired"),  # slow on any machine
        (0.03, 0.05, {"num_workers": 2}, crowded(0.0, 2, 0.0), "fired"),
        (0.03, 0.05, {"num_workers": 2}, crowded(0.0, 2, 0.8), "passed"),  # its workers found no processor
        (0.03, 0.05, {"num_workers": 2}, crowded(0.0, 2, 0.45, work=0.01), "passed"),  # 31 us of work in a sample
        (0.2, 0.25, {"num_workers": 2}, crowded(0.0, 2, 0.8), "fired"),  # and yet each batch takes long
        (0.008, 0.01, {"num_workers": 1}, crowded(0.0, 1, 0.0), "passed"),  # on its way from the worker
        (0.008, 0.01, {"num_workers": 1}, crowded(0.0, 1, 0.0, work=0.8), "fired"),  # 8 ms of work in each batch
    ],
)
def test_dataloader_bottleneck_on_a_crowded_machine(make, wait, seconds, settings, samples, status) -> None:
    assert make.check("dataloader-bottleneck", loading(make, wait, seconds, samples=samples, **settings))[0] == status


def test_a_wait_that_was_measured_on_a_crowded_machine_is_not_critical(make) -> None:
    alone = loading(make, 0.2, 0.22, samples=crowded(0.0))
    assert make.check("dataloader-bottleneck", alone)[2].severity == "critical"
    beside_others = loading(make, 0.2, 0.22, samples=crowded(0.4))
    assert make.check("dataloader-bottleneck", beside_others)[2].severity == "warning"
    little = make.check("dataloader-bottleneck", loading(make, 0.012, 0.03, samples=crowded(0.55)))[2]
    assert little.severity == "info", "a fifth of a step is what a prediction may be wrong by"
    slow_samples = make.check("dataloader-bottleneck", loading(make, 0.2, 0.22, samples=crowded(0.7)))[2]
    assert slow_samples.severity == "warning", "1.9 ms each, on a processor of their own"
    workers = loading(make, 0.2, 0.22, num_workers=2, samples=crowded(0.0, 2, 0.8))
    among_many = make.check("dataloader-bottleneck", workers)[2]
    assert among_many.severity == "info", "the wait is more that of the machine than of the data"
    assert "Others held the processors for 80% of the time" in among_many.summary
    less = loading(make, 0.03, 0.05, num_workers=2, samples=crowded(0.0, 2, 0.45, work=0.15))
    half = make.check("dataloader-bottleneck", less)[2]
    assert "on a machine of its own the training would wait less" in half.summary
    assert half.severity == "info", "what is left without the others is under the limit"


def test_loading_that_is_slow_by_itself_is_told_on_a_crowded_machine_too(make) -> None:
    """Nine tenths of the time went to others, so that no edit saves a fifth of a step there; 0.6 ms a sample stay."""
    mine = make.check("dataloader-bottleneck", loading(make, 0.2, 0.25, samples=crowded(0.9), cpus=2))[2]
    assert mine.severity == "warning"
    assert "the training would still wait for about 80% of it" in mine.summary
    samples = crowded(0.0, 2, 0.7, work=0.6)
    made = make.check("dataloader-bottleneck", loading(make, 0.2, 0.22, num_workers=2, samples=samples))[2]
    assert made.severity == "warning", "132 ms of work in each worker beside 20 ms of computation"


def test_what_a_sample_takes_a_worker_is_told_where_it_is_known(make) -> None:
    """How long a worker took is known from above only: it waits for a disk, for others, for room in the queue."""
    line = {
        "site": 5,
        "role": "seen",
        "file": "t.py",
        "line": 9,
        "function": "__getitem__",
        "source": "def load(self):",
    }

    def told(samples: dict[str, object] | None) -> Any:
        process = loading(make, 0.2, 0.25, num_workers=2, samples=samples, read_by=5)
        sites = make.process(sites=[line]).tables["sites"]
        process = replace(process, tables={**process.tables, "sites": sites})
        return make.check("dataloader-bottleneck", process)[2]

    known, unknown = told(crowded(0.0, 2, 0.0)), told(None)
    assert "A sample takes a worker 1.56 ms of its processor. Samples are made by line 9: def load(self)." in (
        known.summary
    )
    assert "A sample takes" not in unknown.summary
    assert "Samples are made by line 9: def load(self)." in unknown.summary
    for finding in (known, unknown):
        assert finding.title == "Training waits for data 80% of the time: 200 ms of 250 ms a step"
        assert "loading time per sample, at most" in {one.name for one in finding.evidence}


def test_a_crowd_of_its_own_workers_is_no_excuse(make) -> None:
    mine = loading(make, 0.03, 0.05, num_workers=8, samples=crowded(0.0, 8, 0.7), cpus=2)
    assert make.check("dataloader-bottleneck", mine)[0] == "fired"


def test_dataloader_bottleneck_does_not_count_first_batches_and_needs_steps(make) -> None:
    steps = make.steps()
    steps["loader_wait"] = [1.0 if first else 0.001 for first in steps["loader_first"]]
    steps["seconds"] = [1.05 if first else 0.05 for first in steps["loader_first"]]
    assert make.check("dataloader-bottleneck", make.process(steps))[0] == "passed"
    assert make.check("dataloader-bottleneck", make.process(make.steps(15), evals={}))[0] == "skipped"
    cuda = [{"optimizer": 0, "name": "SGD", "device": "cuda:0", "dtype": "float32"}]
    assert make.check("dataloader-bottleneck", make.process(optimizers=cuda))[0] == "skipped"


def test_dataloader_bottleneck_does_not_count_the_first_batch_of_each_worker(make) -> None:
    """Two workers start anew with each epoch of 20 batches, and each reads the dataset's index first."""

    def epochs(slow: tuple[int, ...], **loader: object):
        place = [index % 20 for index in range(COUNT)]
        waits = [1.0 if one in slow else 0.001 for one in place]
        steps = make.steps() | {"loader_first": [one == 0 for one in place], "loader_wait": waits}
        settings = {"loader": 0, "dataset": "Images", "length": 20, "batch_size": 32, "num_workers": 2, "site": 2}
        return make.process(steps | {"seconds": [wait + 0.02 for wait in waits]}, loaders=[settings | loader])

    assert make.check("dataloader-bottleneck", epochs((0, 1)))[0] == "passed"
    assert make.check("dataloader-bottleneck", epochs((0, 1), persistent_workers=True))[0] == "fired"
    assert make.check("dataloader-bottleneck", epochs(tuple(range(0, 20, 2))))[0] == "fired", (
        "every second batch is late"
    )


def on_device(make, wait: float, idle: float, seconds: float, **loader):
    """The host waits `wait` seconds of each step, the device stands idle for `idle` of them."""
    process = loading(make, wait, seconds, **loader)
    steps = make.steps() | {
        "loader_wait": [wait] * COUNT,
        "seconds": [seconds] * COUNT,
        "device_wait": [None, *[idle] * (COUNT - 1)],
        "device_seconds": [None, *[seconds] * (COUNT - 1)],
    }
    cuda = [{"optimizer": 0, "name": "SGD", "device": "cuda:0", "dtype": "float32"}]
    return make.process(steps, optimizers=cuda, loaders=list(process.loaders.records()))


def test_dataloader_bottleneck_of_a_device_that_stands_idle(make) -> None:
    _, _, finding = make.check("dataloader-bottleneck", on_device(make, 0.04, 0.035, 0.06))
    assert "device" in finding.title
    assert finding.evidence[0].name == "median share of time the device was idle for data"
    assert finding.evidence[0].value == pytest.approx(0.035 / 0.06, rel=0.05)
    assert "num_workers=8" in finding.fix_code
    saving = next(e.value for e in finding.evidence if e.name == "predicted saving per step")
    assert saving <= 0.035 / 0.06
    assert any(line.name == "device idle for data" for chart in finding.charts for line in chart.lines)


def test_a_wait_that_the_queue_of_the_device_hides_is_none(make) -> None:
    status, reason, _ = make.check("dataloader-bottleneck", on_device(make, 0.04, 0.0005, 0.06))
    assert status == "passed"
    assert "device" in reason


def test_the_wait_for_a_validation_loader_is_not_the_trainings(make) -> None:
    process = on_device(make, 0.002, 0.05, 0.06)  # the device waited for other batches than those of the step
    assert make.check("dataloader-bottleneck", process)[0] == "passed"


def test_the_line_of_a_batch_that_was_timed(make: Any) -> None:
    def timed(text: str, loader: float = 0.0, **given: object) -> Any:
        row = {"time": 9.0, "step": 400, "kind": "loading", "name": "parse", "value": loader, "text": text}
        process = loading(make, 0.58, 0.6, cpus=2, **given)
        events = make.process(events=[{**row, "file": "data.py", "line": 7, "source": "x = float(part)"}])
        process = replace(process, tables={**process.tables, "events": events.tables["events"]})
        return make.check("dataloader-bottleneck", process)[2]

    finding = timed("900 of 1000")
    assert (finding.location.file, finding.location.line, finding.location.function) == ("data.py", 7, "parse")
    assert "most of it in parse, above all at line 7: x = float(part)." in finding.summary
    assert timed("400 of 1000").location.file == "train.py", "no function stands out"
    assert timed("900 of 1000", loader=3.0).location.file == "train.py", "another loader"
    assert timed("900 of 1000", num_workers=1).location.line == 7
