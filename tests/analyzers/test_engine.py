"""The engine: choice of rules, thresholds, failures, merging, causes, order, facts."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tracelyze.analyzers import causality, diagnose, merging
from tracelyze.analyzers.kineto.rules import RULES as TRACE_RULES
from tracelyze.analyzers.rule import Passed, Rule, Skipped, together
from tracelyze.analyzers.rules import RULES
from tracelyze.diagnosis import Chart, Cost, Diagnosis, Excerpt, Exit, Finding, Location
from tracelyze.errors import InputError
from tracelyze.reports.wording import words

COUNT = 400
NAN = float("nan")
RULE = Rule(
    id="a", family="loss", severity="info", title="A", about="About a.", check=lambda _process, _limits: Passed("seen")
)


def finding(rule: str, **changes) -> Finding:
    base = Finding(rule=rule, severity="critical", confidence="certain", title=rule, summary=".", fix=".")
    return replace(base, **changes)


def test_a_healthy_run_has_no_finding_and_one_check_per_rule(make) -> None:
    diagnosis = diagnose(make.run(make.process()))
    assert diagnosis.findings == []
    assert diagnosis.verdict == "ok"
    only_traces = [rule.id for rule in TRACE_RULES if rule.id not in {rule.id for rule in RULES}]
    assert [check.rule for check in diagnosis.checks] == [rule.id for rule in RULES] + only_traces
    assert {check.status for check in diagnosis.checks} == {"passed", "skipped"}
    assert all(check.reason for check in diagnosis.checks)
    titles = [chart.title for chart in diagnosis.charts]
    assert titles == ["Training loss", "Gradient norm", "Time per step", "Memory"]
    assert diagnosis.run.steps == COUNT
    assert diagnosis.run.overhead == pytest.approx(0.008, rel=0.1)


def test_the_cost_of_recording_is_stated_without_the_start_of_the_run(make) -> None:
    steps = make.steps()
    steps["overhead"] = [0.4] + [0.02] * 99 + [0.0003] * (COUNT - 100)
    steps["seconds"] = [NAN] + [0.004] * (COUNT - 1)
    diagnosis = diagnose(make.run(make.process(steps)))
    run = diagnosis.run
    assert run.overhead == pytest.approx(0.075)
    assert run.overhead_at_start == pytest.approx(0.4 + 99 * 0.02)
    assert words.recording(diagnosis).startswith("Recording took 0.3 ms of 4 ms a step (7.5%")
    assert ", and 2.38 s in all at the start." in words.recording(diagnosis)
    assert words.recording(replace(diagnosis, charts=[])) == words.recording(diagnosis)
    short = {name: values[:40] for name, values in steps.items()}
    run = diagnose(make.run(make.process(short))).run
    assert run.overhead == pytest.approx(0.02 / 0.004), "only the first step, whose own time is not known, is left out"
    assert run.overhead_at_start == pytest.approx(0.4)


def test_the_diagnosis_is_plain_data(make) -> None:
    steps = make.steps() | {"grads_carried": [0] + [8] * (COUNT - 1)}
    steps["loss"][300:] = [NAN] * 100
    data = diagnose(make.run(make.process(steps))).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_choice_of_rules(make) -> None:
    run = make.run(make.process())
    assert [check.rule for check in diagnose(run, select=["crash", "killed"]).checks] == ["crash", "killed"]
    assert "crash" not in [check.rule for check in diagnose(run, ignore=["crash"]).checks]
    with pytest.raises(InputError, match="no such rule"):
        diagnose(run, select=["crashh"])


def test_thresholds_of_the_configuration(make) -> None:
    steps = make.steps() | {"grads_carried": [0] + [8] * 50 + [0] * (COUNT - 51)}
    run = make.run(make.process(steps))
    assert diagnose(run).findings == []
    changed = diagnose(run, thresholds={"missing-zero-grad": {"share": 0.1}})
    assert [found.rule for found in changed.findings] == ["missing-zero-grad"]
    assert any(evidence.source == "set in the configuration" for evidence in changed.findings[0].evidence)
    with pytest.raises(InputError, match="it has: share, steps, tensors"):
        diagnose(run, thresholds={"missing-zero-grad": {"typo": 1}})
    with pytest.raises(InputError, match="no such rule"):
        diagnose(run, thresholds={"typo": {"share": 1}})


def test_a_rule_that_raises_is_skipped_and_the_others_go_on(make) -> None:
    def broken(process, limits):
        raise ZeroDivisionError("division by zero")

    def fine(process, limits):
        return Passed("fine")

    rules = [
        Rule(id="broken", family="test", severity="info", title="Broken", about=".", check=broken),
        Rule(id="fine", family="test", severity="info", title="Fine", about=".", check=fine),
        Rule(
            id="blind",
            family="test",
            severity="info",
            title="Blind",
            about=".",
            check=fine,
            needs=(("steps.scale",), ("steps.clips", "steps.loss")),
        ),
    ]
    checks = diagnose(make.run(make.process()), rules=rules).checks
    assert [(check.status, check.reason) for check in checks] == [
        ("skipped", "The rule itself failed: ZeroDivisionError: division by zero."),
        ("passed", "Fine."),
        ("skipped", "Not recorded: use of a GradScaler."),
    ]
    assert 'raise ZeroDivisionError("division by zero")' in checks[0].traceback
    assert "traceback" not in diagnose(make.run(make.process()), rules=rules[1:]).to_dict()["checks"][0]
    with pytest.raises(ZeroDivisionError):  # who writes the rule wants to see where
        make.check(rules[0], make.process())


def test_a_rule_that_raises_on_one_rank_has_passed_on_none(make) -> None:
    """Nothing is known of that rank."""

    def check(process, limits):
        if process.rank:
            raise ZeroDivisionError("division by zero")
        return Passed("fine")

    rule = Rule(id="broken", family="test", severity="info", title="Broken", about=".", check=check)
    (found,) = diagnose(make.run(make.process(facts={"rank": 0}), make.process(facts={"rank": 1})), rules=[rule]).checks
    assert (found.status, "division by zero" in found.reason) == ("skipped", True)


def test_a_recording_without_a_loader_says_so(make) -> None:
    """Tables that every recording has are no gap where they are empty; a log of another tool does not hold them."""
    facts = {"signals": {"clipping": {"columns": ["steps.clipped_scaled"]}}}
    recorded = make.check("no-shuffle", make.process(facts=facts, loaders=[]))
    assert recorded[:2] == ("skipped", "The run uses no DataLoader.")
    imported = make.check("no-shuffle", make.process(loaders=[]))
    assert imported[:2] == ("skipped", "Not recorded: DataLoaders.")


def test_a_skip_names_the_signal_that_is_off(make) -> None:
    facts = {"signals": {"clipping": {"columns": ["steps.clipped_scaled"], "reason": "switched off"}}}
    _, reason, _ = make.check("clip-before-unscale", make.process(facts=facts))
    assert reason == "The signal clipping is off (switched off)."


def test_the_same_fault_on_several_ranks_is_one_finding(make) -> None:
    bad = make.steps() | {"grads_carried": [0] + [8] * (COUNT - 1)}
    processes = [make.process(bad), make.process(bad), make.process()]
    for rank, process in enumerate(processes):
        process.facts = {"rank": rank}
    diagnosis = diagnose(make.run(*processes))
    (found,) = diagnosis.findings
    assert found.ranks == [0, 1]
    assert "2 ranks: 0 and 1" in found.summary
    assert diagnosis.run.ranks == 3


def test_the_same_fault_of_two_optimizers_is_one_finding(make) -> None:
    steps = make.steps() | {
        "optimizer": [index % 2 for index in range(COUNT)],
        "step": [1 + index // 2 for index in range(COUNT)],
        "grads_carried": [0, 0] + [8] * (COUNT - 2),
    }
    both = [{"optimizer": 0, "name": "Adam"}, {"optimizer": 1, "name": "SGD"}]
    (found,) = diagnose(make.run(make.process(steps, optimizers=both)), select=["missing-zero-grad"]).findings
    assert "Adam" in found.title
    assert "SGD" in found.summary


def test_a_chain_of_causes_has_one_root(make) -> None:
    steps = make.steps() | {"grads_carried": [0] + [8] * (COUNT - 1)}
    norm = [1.0] * 100 + [10.0 ** (index / 10) for index in range(100)] + [1e10] * 200
    steps |= {"grad_norm": norm, "loss": [1.0] * 250 + [NAN] * 150, "grads_nonfinite": [0] * 240 + [8] * 160}
    events = [{"kind": "exception", "name": "ValueError", "text": "ValueError: NaN", "step": COUNT, "time": 20.0}]
    diagnosis = diagnose(make.run(make.process(steps, events=events, end=Exit("exception", 1))))
    assert [(f.rule, f.caused_by) for f in diagnosis.findings] == [
        ("missing-zero-grad", None),
        ("exploding-gradients", "missing-zero-grad"),
        ("nonfinite-gradients", "exploding-gradients"),
        ("loss-nonfinite", "nonfinite-gradients"),
        ("crash", "loss-nonfinite"),
    ]
    assert next(mark.label for mark in diagnosis.charts[0].marks) == "missing-zero-grad"


def test_two_faults_stay_two_roots_in_order_of_gravity(make) -> None:
    steps = make.steps() | {"grads_carried": [0] + [8] * (COUNT - 1), "live_graphs": list(range(COUNT))}
    findings = diagnose(make.run(make.process(steps))).findings
    assert [(f.rule, f.caused_by) for f in findings] == [("missing-zero-grad", None), ("memory-leak", None)]


def test_of_an_attempt_that_was_restarted_only_its_end_is_judged(make) -> None:
    """What it logged, or how it trained, is history: the last attempt is the run."""
    died = Exit("exception", 1, "ValueError: broken")
    raised = [{"time": 21.0, "kind": "exception", "name": "ValueError", "text": "ValueError: broken"}]
    logged = [
        {"step": step, "phase": "reported", "name": "train/loss", "value": 32 * make.steps()["loss"][step - 1]}
        for step in range(40, 401, 40)
    ]
    attempts = [
        make.process(end=died, events=raised, facts={"attempt": 0, "pid": 1}, more={"scalars": logged}),
        make.process(facts={"attempt": 1, "pid": 2}),
    ]
    assert make.check("reported-loss-mismatch", attempts[0])[0] == "fired"
    found = diagnose(make.run(*attempts)).findings
    assert [(finding.rule, finding.severity) for finding in found] == [("crash", "warning")]


RULE_A = Rule(id="a", family="t", severity="info", title="A", about=".", check=lambda p, c: Passed("."))
RULE_B = Rule(
    id="b", family="t", severity="info", title="B", about=".", check=lambda p, c: Passed("."), consequence_of=("a",)
)
RULE_C = Rule(
    id="c", family="t", severity="info", title="C", about=".", check=lambda p, c: Passed("."), consequence_of=("a", "b")
)


def test_the_nearest_cause_explains() -> None:
    found = [finding("c", first_step=30), finding("b", first_step=20), finding("a", first_step=10)]
    explained = {f.rule: f.caused_by for f in causality.explain(found, [RULE_A, RULE_B, RULE_C])}
    assert explained == {"a": None, "b": "a", "c": "b"}


def test_a_later_finding_or_another_rank_explains_nothing() -> None:
    rules = [RULE_A, RULE_B]
    later = causality.explain([finding("a", first_step=30), finding("b", first_step=20)], rules)
    assert [f.caused_by for f in later] == [None, None]
    elsewhere = causality.explain([finding("a", ranks=[1]), finding("b", ranks=[0])], rules)
    assert [f.caused_by for f in elsewhere] == [None, None]
    unknown = causality.explain([finding("a"), finding("b", first_step=20)], rules)
    assert [f.caused_by for f in unknown] == [None, "a"]


def test_of_two_rules_that_name_each_other_the_earlier_is_the_cause(make) -> None:
    for divergence, explosion in ((10, 20), (20, 10)):
        found = [
            finding("loss-divergence", first_step=divergence),
            finding("exploding-gradients", first_step=explosion),
        ]
        causes = {f.rule: f.caused_by for f in causality.explain(found, RULES)}
        late, early = ("exploding-gradients", "loss-divergence")[:: 1 if divergence < explosion else -1]
        assert causes == {early: None, late: early}


def test_order_puts_each_root_before_its_consequences() -> None:
    found = [
        finding("late", caused_by="root", first_step=9),
        finding("other", severity="warning"),
        finding("early", caused_by="root", first_step=3),
        finding("root", cost=Cost(1.0, 0.1)),
        finding("dear", cost=Cost(100.0, 0.5)),
    ]
    assert [f.rule for f in causality.order(found)] == ["dear", "root", "early", "late", "other"]


def test_merging_keeps_the_gravest_and_the_earliest() -> None:
    one = finding("a", severity="warning", first_step=5, ranks=[0], cost=Cost(9.0, 0.1))
    two = finding("a", first_step=8, ranks=[1], last_step=20)
    (merged,) = merging.merge([one, two])
    assert (merged.severity, merged.first_step, merged.last_step, merged.ranks) == ("critical", 5, 20, [0, 1])
    assert merged.cost == Cost(9.0, 0.1)
    assert merging.merge([]) == []


def test_merging_says_where_else_and_on_which_ranks() -> None:
    lead = finding("a", title="twice", location=Location("src/train.py", 9))
    again = [replace(lead, severity="warning", location=Location("src/train.py", line)) for line in (9, 40, 40)]
    (merged,) = merging.merge([lead, *again])
    assert merged.summary.count("twice") == 0, "the title stands above it already"
    assert merged.summary.endswith("The same holds elsewhere: train.py:40.")
    (told,) = merging.merge([lead, replace(lead, title="thrice")])
    assert told.summary.endswith("Found besides: thrice.")
    for places, end in ((4, "fold 3; fold 4."), (5, "fold 3; and 2 other places.")):
        folds = [lead, *(replace(lead, title=f"fold {fold}") for fold in range(1, places + 1))]
        assert merging.merge(folds)[0].summary.endswith(end), "none is left out without a word"
    (every,) = merging.merge([replace(lead, ranks=[rank]) for rank in range(8)])
    assert every.summary.endswith("Seen on 8 ranks: 0 to 7.")
    (apart,) = merging.merge([replace(lead, ranks=[rank], location=Location("train.py", rank + 1)) for rank in (0, 1)])
    assert apart.summary.endswith("Seen on 2 ranks: 0 and 1; the line is that of rank 0.")


def test_the_worst_end_is_the_end_of_the_run(make) -> None:
    run = make.run(make.process(), make.process(end=Exit("vanished")))
    assert diagnose(run).run.exit.kind == "vanished"


def test_an_empty_run_is_not_called_healthy(make) -> None:
    diagnosis: Diagnosis = diagnose(make.run())
    assert {check.status for check in diagnosis.checks} == {"skipped"}
    assert diagnosis.run.notes == ["nothing trained in this run: no optimizer took a step"]
    assert diagnosis.verdict == "unknown"
    assert diagnosis.verdict_reason == "Nothing trained in this run: no optimizer took a step."


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("interrupted", "The run was interrupted before its first optimizer step."),
        ("running", "The run is still starting: it has not taken an optimizer step yet."),
        ("finished", "Nothing trained in this run: no optimizer took a step."),
    ],
)
def test_a_run_without_a_step_is_unknown_and_says_why(make, kind: str, reason: str) -> None:
    diagnosis = diagnose(make.run(make.process(steps={}, end=Exit(kind))))
    assert (diagnosis.verdict, diagnosis.verdict_reason) == ("unknown", reason)


def test_backward_passes_without_a_step_are_counted(make) -> None:
    diagnosis = diagnose(make.run(make.process(facts={"backwards": 400}, steps={})))
    expected = "No training that can be followed was seen: 400 backward passes ran, and no optimizer took a step."
    assert (diagnosis.verdict, diagnosis.verdict_reason) == ("unknown", expected)


UNSEEN = "No training loss was seen: whether it fell, diverged or became NaN was not checked."


def test_a_run_without_a_loss_says_so_and_is_ok_only_if_its_gradients_were_followed(make) -> None:
    seen = make.steps()
    assert diagnose(make.run(make.process(seen))).verdict_reason == ""
    followed = diagnose(make.run(make.process({name: seen[name] for name in seen if name != "loss"})))
    assert (followed.verdict, followed.verdict_reason) == ("ok", UNSEEN)
    unfollowed = diagnose(make.run(make.process({name: seen[name] for name in ("backwards", "lr", "time")})))
    assert any(check.status == "passed" for check in unfollowed.checks)
    assert (unfollowed.verdict, unfollowed.verdict_reason) == ("unknown", UNSEEN)


def test_a_run_whose_gradients_and_updates_nobody_saw_says_how_little_was_looked_at(make) -> None:
    """As one whose steps are calls of torch.func: what its checks did not see is no virtue of the run."""
    signals = {"loss_inputs": {"columns": ["loss_calls.made_by"], "reason": ""}}
    events = [{"kind": "functional-gradients", "name": "torch.func", "step": 0, "time": 0.1}]
    bare = {name: make.steps()[name] for name in ("loss", "time")}
    diagnosis = diagnose(make.run(make.process(bare, events=events, facts={"signals": signals})))
    assert diagnosis.verdict == "ok"
    assert diagnosis.verdict_reason == (
        "Little could be looked at: nothing was seen of gradients, updates of the weights and the layers."
    )
    (softmax,) = [check for check in diagnosis.checks if check.rule == "softmax-wrong-dim"]
    assert (softmax.why, softmax.reason.partition(" ")[0]) == ("needs-more", "torch.func")
    plain = diagnose(make.run(make.process(make.steps(), facts={"signals": signals})))
    assert plain.verdict_reason == ""
    (softmax,) = [check for check in plain.checks if check.rule == "softmax-wrong-dim"]
    assert softmax.why == "not-applicable"


def test_a_run_of_which_every_check_was_skipped_is_unknown(make) -> None:
    needs = replace(RULE, needs=(("steps.grad_norm",),))
    diagnosis = diagnose(make.run(make.process(steps={"loss": [1.0, 1.0]})), rules=[needs])
    assert diagnosis.verdict == "unknown"
    assert diagnosis.verdict_reason.startswith("No check could run: ")


def test_an_interruption_is_no_verdict_and_a_crash_is_one() -> None:
    note = Finding("a", "info", "certain", "t", "s", "f")
    assert causality.verdict_of([], "nothing trained") == "unknown"
    assert causality.verdict_of([note], "nothing trained") == "unknown"
    assert causality.verdict_of([note, replace(note, severity="critical")], "nothing trained") == "critical"
    assert causality.verdict_of([note]) == "info"
    assert causality.verdict_of([]) == "ok"


@pytest.mark.parametrize(
    ("signals", "why", "record"),
    [
        ({"clipping": {"columns": ["steps.clips"], "reason": ""}}, "not-applicable", ""),
        ({"clipping": {"columns": ["steps.clips"], "reason": "switched off"}}, "needs-more", "--signal clipping=on"),
        ({}, "needs-more", ""),
    ],
)
def test_a_skipped_check_says_whether_it_applies(make, signals, why: str, record: str) -> None:
    rule = replace(RULE, needs=(("steps.clips",),))
    run = make.run(make.process(steps={"loss": [1.0, 1.0]}, facts={"signals": signals}))
    (check,) = diagnose(run, rules=[rule]).checks
    assert (check.status, check.why) == ("skipped", why)
    assert record in check.command
    assert bool(check.command) == bool(record)


def test_what_needs_more_counts_before_what_does_not_apply() -> None:
    off = Skipped("signal off", record="--signal x=on")
    answers = [Skipped("one rank", "not-applicable"), Skipped("too short"), off]
    assert together(answers) == Skipped("too short; signal off", "needs-more", "--signal x=on")
    assert together(answers[:1]) == answers[0]


def test_findings_show_the_lines_around_and_the_time_of_day(make) -> None:
    lines = "for x in data:\n    loss = model(x)\n    loss.backward()"
    place = {"file": "train.py", "line": 12, "function": "main", "source": "loss.backward()"}
    sites = [{"site": 0, "role": "backward", **place, "excerpt": lines, "excerpt_line": 10}]
    facts = {"clock": {"zero": 1_700_000_000.0}}
    process = make.process(sites=sites, facts=facts)
    finding = Finding("a", "info", "certain", "t", "s", "f", location=Location(**place), first_second=61.5)
    (found,) = diagnose(make.run(process), rules=[replace(RULE, check=lambda *_: [finding])]).findings
    assert found.excerpt == Excerpt(10, lines.split("\n"))
    assert found.first_at == "2023-11-14T22:14:21+00:00"
    elsewhere = replace(finding, location=Location(**place | {"line": 13}))
    (found,) = diagnose(make.run(process), rules=[replace(RULE, check=lambda *_: [elsewhere])]).findings
    assert found.excerpt is None


def test_findings_of_many_ranks_keep_the_charts_that_are_shown() -> None:
    random = np.random.default_rng(0)

    def seen(rank: int) -> Finding:
        charts = [Chart(f"{rank}-{n}", "x", "y", [], []) for n in range(random.integers(0, 7))]
        severity = ("critical", "warning", "info")[random.integers(0, 3)]
        cost = Cost(float(random.integers(0, 3)), None)
        return Finding("r", severity, "likely", f"t{rank}", "s", "f", ranks=[rank], charts=charts, cost=cost)  # type: ignore[arg-type]

    for _ in range(30):
        every = [seen(rank) for rank in range(12)]
        kept: list[Finding] = []
        for one in every:
            kept = merging.lightened([*kept, one])
            assert sum(bool(one.charts) for one in kept) <= merging.MAX_CHARTS
        assert merging.merge(kept) == merging.merge(every)


@pytest.mark.filterwarnings("error")
def test_steps_without_a_time_warn_of_nothing(make) -> None:
    steps = make.steps() | {"time": [None] * 400}
    diagnosis = diagnose(make.run(make.process(steps, facts={"clock": {"zero": 1.0}})))
    assert diagnosis.run.steps == 400
