"""killed: which limit ended the process, and ends that are no kill."""

from __future__ import annotations

from typing import Any

from tracelyze.diagnosis import Exit

COUNT = 400


def test_killed(make) -> None:
    samples = {"time": [1.0, 2.0], "host_available": [5e9, 1e8], "host_rss": [1e9, 6e9]}
    starved = make.process(samples=samples, end=Exit("vanished"), facts={"host_memory_bytes": 16e9})
    assert "host memory most likely ran out" in make.check("killed", starved)[2].title
    roomy = make.process(samples=samples | {"host_available": [5e9, 5e9]}, end=Exit("vanished"))
    assert "probably not" in make.check("killed", roomy)[2].summary
    falling = {"time": [1.0, 2.0, 3.0], "host_available": [9e9, 7e9, 3e9]}
    assert (
        "host memory most likely ran out"
        in make.check("killed", make.process(samples=falling, end=Exit("vanished")))[2].title
    )
    slowly = falling | {"host_available": [5.2e9, 5.1e9, 5e9]}
    assert (
        "host memory most likely ran out"
        not in make.check("killed", make.process(samples=slowly, end=Exit("vanished")))[2].title
    )
    signal = make.check("killed", make.process(end=Exit("signal", None, "Segmentation fault")))[2]
    assert "Segmentation fault" in signal.title
    assert signal.location is None
    told = "Fatal Python error: Aborted, in forward at line 24 of train.py"  # worded by exits.py, see test_rundir.py
    assert make.check("killed", make.process(end=Exit("signal", None, told)))[2].location.line == 24
    full = make.process(end=Exit("vanished"))
    full.notes.append("recording stopped at step 30: no space left on device")
    assert make.check("killed", full)[2].confidence == "possible"


def test_a_kill_is_told_by_the_step_of_the_optimizer_that_ran(make) -> None:
    """A short training that followed a long one, each with steps of its own; or none at all yet."""
    two = [{"optimizer": at, "name": name, "device": "cpu"} for at, name in enumerate(("Adam", "SGD"))]
    steps = make.steps() | {"optimizer": [0] * 300 + [1] * 100, "step": [*range(1, 301), *range(1, 101)]}
    _, _, finding = make.check("killed", make.process(steps, optimizers=two, end=Exit("vanished")))
    assert finding.title == "The program was killed after step 100 of training 2 of 2 and left no message"
    assert finding.first_step == 100
    nothing = {name: values[:0] for name, values in make.steps().items()}
    _, _, early = make.check("killed", make.process(nothing, optimizers=[], end=Exit("vanished")))
    assert early.title == "The program was killed before its first step and left no message"
    assert "No step was recorded." in early.summary


def test_what_was_not_measured_is_no_evidence_of_a_kill(make) -> None:
    blind = make.check("killed", make.process(samples={"time": [1.0, 2.0]}, end=Exit("vanished")))[2]
    assert "memory left to the process" not in {one.name for one in blind.evidence}


def test_a_loop_that_raises_at_a_loss_that_is_no_number_ended_there(make) -> None:
    given_up = [{"kind": "loss-given-up", "step": COUNT, "name": "Inf", "time": 1.0}]
    ended = make.process(events=given_up, end=Exit("exception", 1, "RuntimeError: diverged"))
    assert make.check("loss-nonfinite", ended)[2].title == "1 loss was Inf, and the program ended there"
    skipped = make.process(events=[given_up[0] | {"step": COUNT // 2}], end=Exit("exception", 1, "KeyError: 'x'"))
    assert make.check("loss-nonfinite", skipped)[2].title.endswith("the loop skipped the step")


def test_killed_for_its_processor_time(make) -> None:
    """`ulimit -t`: the kernel ends the process without a message."""

    source = "resource.setrlimit(resource.RLIMIT_CPU, (budget, budget))"
    sets = {"site": 77, "role": "limit", "file": "a.py", "line": 28, "function": "guard", "source": source}

    def told(limit: float | None, end: str = "vanished", sites: Any = (sets,)) -> Any:
        used = [1.0 * at for at in range(10)]
        samples = {"time": used, "cpu_seconds": used, "cpu_limit": [limit] * 10, "host_available": [20e9] * 10}
        return make.check("killed", make.process(samples=samples, end=Exit(end), sites=list(sites)))[2]

    finding = told(10.0)
    assert finding.title.endswith("its processor time was used up")
    assert "RLIMIT_CPU" in finding.summary
    assert finding.fix.startswith("Raise the limit that line 28 sets, or take it away. It counts in seconds, of all")
    assert "`ulimit -t` in the shell" in told(10.0, sites=[]).fix
    (used,) = [one for one in finding.evidence if one.name == "processor time used"]
    assert (used.value, used.threshold) == ("9 s", "10 s")
    assert "SIGALRM" not in finding.summary
    assert "memory" not in finding.summary
    assert finding.location.line == 28, "the script sets the limit itself"
    by_name = {
        "args.cpu_minutes, args.cpu_minutes": "Multiply args.cpu_minutes by 60 in line 28: it reads as minutes, and",
        "hours, hours": "Multiply hours by 3,600 in line 28: it reads as hours, and",
        "60 * cpu_minutes, 60 * cpu_minutes": "Raise the limit that line 28 sets",
        "minutes_left(), hours": "Raise the limit that line 28 sets",
        "seconds_of(minutes), seconds_of(minutes)": "Raise the limit that line 28 sets",
    }
    for given, said in by_name.items():
        line = f"resource.setrlimit(resource.RLIMIT_CPU, ({given}))"
        assert told(10.0, sites=[sets | {"source": line}]).fix.startswith(said)
    for limit in (3600.0, None):
        assert told(limit).location is None
        assert "processor time" not in told(limit).title
        assert "probably not killed for memory" in told(limit).summary


def test_not_killed(make) -> None:
    for end in (Exit("finished", 0), Exit("exception", 1), Exit("running"), Exit("interrupted")):
        assert make.check("killed", make.process(end=end))[0] == "passed"
    assert make.check("killed", make.process(end=Exit("unknown")))[0] == "skipped"
