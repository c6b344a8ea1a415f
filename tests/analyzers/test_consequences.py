"""What can follow from what: the table holds together, and explains findings as it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracelyze.analyzers import causality, consequences, diagnose
from tracelyze.analyzers.consequences import ANY_TIME, AT_ONCE, CONSEQUENCES, Consequence
from tracelyze.analyzers.kineto.rules import RULES as TRACE_RULES
from tracelyze.analyzers.rule import Passed, Rule
from tracelyze.analyzers.rules import RULES
from tracelyze.analyzers.rules.ending.crash import no_numbers
from tracelyze.catalogue import pages
from tracelyze.catalogue.entries import entries
from tracelyze.diagnosis import Cost, Diagnosis, Ending, Evidence, Finding, Trait

DECLARED = [*RULES, *TRACE_RULES]
IDS = {rule.id for rule in DECLARED}
COUNT = 400
RUN = 2000


def finding(rule: str, first: int | None, last: int | None = None, **changes) -> Finding:
    base = Finding(rule, "critical", "likely", rule, ".", ".", first_step=first, last_step=last)
    return replace(base, **changes)


def causes(*found: Finding, steps: int = RUN) -> dict[str, str | None]:
    return {one.rule: one.caused_by for one in causality.explain(found, DECLARED, steps)}


def crash(step: int, exception: str, message: str) -> Finding:
    told = [Evidence("exception", exception, role="message"), Evidence("message", message, role="message")]
    traits = {"no-numbers"} if no_numbers.spoken_of(exception, message) else set()
    return finding("crash", step, step, confidence="certain", evidence=told, traits=frozenset(traits))


def test_no_rate_is_proposed_beside_the_cause_of_small_updates() -> None:
    own = {"fix": "Raise the rate.", "fix_code": "SGD(model.parameters(), lr=13)"}
    effect, cause = finding("clipping-freezes-updates", 1, **own), finding("clip-before-unscale", 1)
    (alone,) = causality.explain([effect], DECLARED, RUN)
    assert alone.fix_code == own["fix_code"]
    _, follows = sorted(causality.explain([effect, cause], DECLARED, RUN), key=lambda one: one.caused_by or "")
    assert (follows.caused_by, follows.fix_code, "Fix the cause" in follows.fix) == (cause.rule, "", True)


def test_no_limit_is_proposed_beside_a_clip_that_freezes_the_training() -> None:
    effect, cause = finding("clipping-always-active", 1, fix_code="lr=2.8e-07"), finding("clipping-freezes-updates", 1)
    explained = {one.rule: one for one in causality.explain([cause, effect], DECLARED, RUN)}
    assert (explained[effect.rule].caused_by, explained[effect.rule].fix_code) == (cause.rule, "")


@pytest.mark.parametrize("rule", consequences.OPEN)
def test_what_sees_that_nothing_is_learned_guesses_at_no_reason_beside_its_cause(rule: str) -> None:
    effect = finding(rule, 200, fix="Look for dead units.", fix_code="print(inputs, labels)")
    assert causality.explain([effect], DECLARED, RUN)[0].fix == effect.fix
    explained = {one.rule: one for one in causality.explain([finding("frozen-parameters", 1), effect], DECLARED, RUN)}
    assert explained[rule].caused_by == "frozen-parameters"
    assert "dead units" not in explained[rule].fix
    assert not explained[rule].fix_code


def test_a_validation_by_the_statistics_of_its_own_batches_is_no_sign_of_too_long_a_training() -> None:
    cause = finding("batchnorm-in-validation", 63, RUN, severity="warning")
    assert causes(finding("overfitting", 63), cause)["overfitting"] == cause.rule
    assert causes(finding("validation-fluctuation", 63), cause)["validation-fluctuation"] == cause.rule


def test_a_loss_that_the_scaler_divides_away_leaves_a_constant() -> None:
    assert causes(finding("constant-output", 212), finding("scaler-misuse", 1))["constant-output"] == "scaler-misuse"


@pytest.mark.parametrize("rule", ["constant-output", "loss-plateau"])
def test_weights_that_are_no_numbers_behind_a_mask_leave_a_constant(rule: str) -> None:
    cause = finding("nonfinite-gradients", 65)
    assert causes(finding(rule, 210), cause)[rule] == cause.rule
    assert causes(finding(rule, 40), cause)[rule] is None, "what began before has another cause"


def test_what_names_a_mechanism_comes_before_what_sees_that_nothing_is_learned() -> None:
    leak = finding("host-memory-leak", 900, confidence="possible")
    constant = finding("constant-output", 200)
    assert [one.rule for one in causality.order([constant, leak])] == ["host-memory-leak", "constant-output"]
    minor = replace(leak, severity="warning")
    assert [one.rule for one in causality.order([minor, constant])] == ["constant-output", "host-memory-leak"]
    assert set(consequences.OPEN) <= IDS


def test_what_spoils_the_result_comes_before_what_only_takes_time() -> None:
    stall = finding("epoch-boundary-stall", 11, confidence="certain", cost=Cost(18.0, 0.3))
    repeats = finding("augmentation-repeats", 11, confidence="certain")
    assert [one.rule for one in causality.order([stall, repeats])] == ["augmentation-repeats", "epoch-boundary-stall"]
    unsure = replace(repeats, confidence="likely")
    assert [one.rule for one in causality.order([stall, unsure])] == ["epoch-boundary-stall", "augmentation-repeats"]
    slow = {rule.id for rule in RULES if rule.family == "throughput"} | {rule.id for rule in TRACE_RULES}
    assert slow - {"memory-fragmentation"} == set(consequences.ONLY_SLOWS)


def test_every_rule_of_the_table_exists_and_no_row_is_said_twice() -> None:
    pairs = [(row.effect, cause) for row in CONSEQUENCES for cause in row.causes]
    assert {rule for pair in pairs for rule in pair} <= IDS
    assert len(set(pairs)) == len(pairs)
    assert [pair for pair in pairs if pair[0] == pair[1]] == []


@pytest.mark.parametrize("row", CONSEQUENCES, ids=lambda row: f"{row.effect}<-{row.causes[0]}")
def test_every_row_says_why_in_a_sentence(row: Consequence) -> None:
    assert row.causes
    assert row.why[0].isupper() or row.why.startswith("float16")
    assert row.why.endswith(".")


def test_no_rule_of_the_catalogue_declares_causes_of_its_own() -> None:
    assert [rule.id for rule in DECLARED if rule.consequence_of] == []


def test_a_rule_from_outside_declares_its_causes() -> None:
    outside = Rule(
        id="licence-lost",
        family="own",
        severity="warning",
        title=".",
        about=".",
        check=lambda p, c: Passed("."),
        consequence_of=("memory-leak",),
    )
    found = [finding("memory-leak", 5), finding("licence-lost", 1900)]
    explained = causality.explain(found, [*DECLARED, outside], RUN)
    assert explained[1].caused_by == "memory-leak"


@pytest.mark.parametrize("row", [row for row in CONSEQUENCES if row.delay is AT_ONCE], ids=lambda row: row.effect)
def test_what_follows_at_once_does_not_follow_late(row: Consequence) -> None:
    reach = int(AT_ONCE.steps + AT_ONCE.share * RUN)
    for cause in row.causes:
        soon = causes(finding(cause, 100, 300), finding(row.effect, 300 + reach))
        late = causes(finding(cause, 100, 300), finding(row.effect, 300 + reach + 1))
        assert (soon[row.effect], late[row.effect]) == (cause, None), "counted from when it was last seen"
        once = causes(finding(cause, 100), finding(row.effect, 100 + reach + 1))
        assert once[row.effect] is None, "a cause without an end was seen once"


@pytest.mark.parametrize("row", [row for row in CONSEQUENCES if row.delay is ANY_TIME], ids=lambda row: row.effect)
def test_what_lasts_has_consequences_at_any_time_after_but_none_before(row: Consequence) -> None:
    for cause in row.causes:
        told, shown = (frozenset({one} if one else ()) for one in (row.given, row.seen_by))
        effect = finding(row.effect, RUN, traits=shown)
        assert causes(finding(cause, 5, 10, traits=told), effect)[row.effect] == cause
        assert causes(finding(cause, 500), finding(row.effect, 400))[row.effect] is None


def test_a_crash_over_a_file_is_an_incident_of_its_own() -> None:
    explosion, broken = finding("missing-zero-grad", 2, RUN), finding("loss-nonfinite", 1990, RUN)
    lost = causes(explosion, broken, crash(RUN, "FileNotFoundError", "[Errno 2] No such file: 'best.pt'"))
    assert (lost["loss-nonfinite"], lost["crash"]) == ("missing-zero-grad", None)
    found = causes(explosion, broken, crash(RUN, "ValueError", "the loss is nan"))
    assert found["crash"] == "loss-nonfinite"


def test_a_loss_that_recovered_explains_no_crash_much_later() -> None:
    message = "probability tensor contains either inf or nan"
    assert causes(finding("loss-nonfinite", 10, 12), crash(60, "RuntimeError", message))["crash"] == "loss-nonfinite"
    assert causes(finding("loss-nonfinite", 10, 12), crash(1900, "RuntimeError", message))["crash"] is None


def test_a_segmentation_fault_is_no_consequence_of_a_leak() -> None:
    leak = finding("host-memory-leak", 10, RUN)
    assert causes(leak, finding("killed", RUN, RUN))["killed"] == "host-memory-leak"
    fault = finding("killed", RUN, RUN, ending=Ending("Ended by a signal", "signal"))
    assert causes(leak, fault)["killed"] is None


def test_a_kill_for_memory_is_no_consequence_of_a_hang() -> None:
    hang = finding("rank-hang", 10, RUN)
    for cause, explained in (("unknown", "rank-hang"), ("time-limit", "rank-hang"), ("oom-kill", None)):
        killed = finding("killed", RUN, RUN, ending=Ending("Killed", cause))
        assert causes(hang, killed)["killed"] == explained


def test_a_denoiser_of_little_noise_has_one_answer_for_all() -> None:
    found = causes(finding("narrow-timesteps", 1), finding("constant-output", 414))
    assert found == {"narrow-timesteps": None, "constant-output": "narrow-timesteps"}


def test_two_incidents_stay_two_each_with_its_own_consequences_in_order_of_onset() -> None:
    """Gradients that are never cleared, and a leak that runs out of memory: neither explains the other."""
    found = [
        finding("out-of-memory", 1900, 1900),
        finding("dead-relu", 300),
        finding("memory-leak", 50, RUN),
        finding("loss-divergence", 200, RUN),
        finding("missing-zero-grad", 2, RUN, confidence="certain"),
        finding("exploding-gradients", 100, RUN),
        finding("constant-output", 250),
    ]
    ordered = causality.order(causality.explain(found, DECLARED, RUN))
    roots = [one.rule for one in ordered if one.caused_by is None]
    assert roots == ["missing-zero-grad", "memory-leak"]
    assert [one.rule for one in ordered] == [
        "missing-zero-grad",
        "exploding-gradients",
        "loss-divergence",
        "constant-output",
        "dead-relu",
        "memory-leak",
        "out-of-memory",
    ]


def test_a_rate_that_is_too_high_only_by_gradients_that_add_up_is_left_out(make) -> None:
    """The loss grows from the first step on, under gradients that are seen to be carried over from the second on."""
    count = 40
    looks = [
        {"step": step, "optimizer": 0, "elements": 64, "weight_norm": 1.0, "update_norm": 0.5, "parameter": "w"}
        for step in (1, 2, 11)
    ]
    optimizers = [{"optimizer": 0, "name": "SGD", "device": "cpu", "dtype": "float32", "parameters": 8}]
    steps = {name: column[:count] for name, column in make.steps(COUNT).items()}
    steps |= {"loss": [2.0**index for index in range(count)], "lr": [0.1] * count}

    def judged(more: dict) -> Diagnosis:
        process = make.process(steps | more, evals={}, optimizers=optimizers, more={"parameters": looks})
        return diagnose(make.run(process))

    alone = judged({})
    rate = next(one for one in alone.findings if one.rule == "learning-rate-too-high")
    assert (rate.first_step, rate.caused_by) == (1, None), "without another cause the rate is the cause"
    diagnosis = judged({"grads_carried": [0] + [8] * (count - 1)})
    assert "learning-rate-too-high" not in {one.rule for one in diagnosis.findings}
    assert [(one.rule, one.first_step) for one in diagnosis.roots()] == [("missing-zero-grad", 2)]
    check = next(one for one in diagnosis.checks if one.rule == "learning-rate-too-high")
    assert (check.status, check.why) == ("skipped", "not-applicable")
    assert check.reason.startswith("missing-zero-grad, which is certain")


@pytest.mark.parametrize(("confidence", "kept"), [("certain", False), ("likely", True), ("possible", True)])
def test_a_weaker_root_leaves_no_other_name_out(confidence, kept) -> None:
    found = [finding("missing-zero-grad", 2, RUN, confidence=confidence), finding("learning-rate-too-high", 1, RUN)]
    assert ("learning-rate-too-high" not in causality.other_names(found, DECLARED, RUN)) is kept


def test_a_rate_that_was_too_high_before_is_kept() -> None:
    found = [finding("missing-zero-grad", 200, RUN, confidence="certain"), finding("learning-rate-too-high", 2, RUN)]
    assert causality.other_names(found, DECLARED, RUN) == {}


def test_pages_name_causes_and_effects_from_the_table() -> None:
    page = {entry.id: pages.rule_page(entry) for entry in entries()}
    explosion = page["exploding-gradients"]
    assert "Can follow from:" in explosion
    assert "missing-zero-grad, partial-zero-grad. Gradients that are not cleared add up" in explosion
    assert "Can lead to:" in explosion
    for row in CONSEQUENCES:
        for cause in row.causes:
            assert cause in page[row.effect].split("Can follow from:")[1]
            assert row.effect in page[cause].split("Can lead to:")[1]


def test_trace_findings_are_explained_by_the_same_table() -> None:
    assert dict(consequences.causes_of("exposed-communication")).keys() == {"straggler"}
    assert {effect for effect, _ in consequences.effects_of("straggler")} == {"slow-steps", "exposed-communication"}


def test_too_many_workers_make_the_first_batch_of_an_epoch_late() -> None:
    """And not the other way round: that batch is late from the second epoch on, with workers that were there before."""
    found = [finding("epoch-boundary-stall", 51, RUN), finding("too-many-workers", 1, RUN)]
    assert causes(*found) == {"epoch-boundary-stall": "too-many-workers", "too-many-workers": None}


def test_at_the_same_step_the_one_that_can_be_the_cause_is_it() -> None:
    found = [finding("loss-plateau", 1, RUN), finding("linear-stack", 1, RUN)]
    assert causes(*found) == {"loss-plateau": "linear-stack", "linear-stack": None}
    found = [finding("loss-plateau", 1, RUN), finding("scaler-misuse", 1, RUN)]
    assert causes(*found) == {"loss-plateau": "scaler-misuse", "scaler-misuse": None}
    for one in CONSEQUENCES:
        for cause in one.causes:
            both = causes(finding(one.effect, 1, RUN), finding(cause, 1, RUN))
            assert None in both.values(), "one of two that begin together is the root"


def test_a_cause_that_is_only_information_explains_no_harm() -> None:
    summed = finding("unscaled-accumulation", 1, RUN, severity="warning", confidence="possible")
    blown_up = finding("exploding-gradients", 34, RUN)
    assert causes(summed, blown_up)["exploding-gradients"] == "unscaled-accumulation"
    assert causes(replace(summed, severity="info"), blown_up)["exploding-gradients"] is None, "Adam divides it out"
    smaller = replace(summed, traits=frozenset({"too-small"}))
    assert causes(smaller, blown_up)["exploding-gradients"] is None, "divided twice, they are too small"
    dead = finding("dead-relu", 40, RUN)
    assert causes(finding("no-shuffle", 1, RUN), dead)["dead-relu"] == "no-shuffle"
    assert causes(finding("no-shuffle", 1, RUN, severity="info"), dead)["dead-relu"] is None, "shuffled well enough"
    assert causes(finding("no-shuffle", 1, RUN, severity="info"), finding("learning-rate-too-high", 2))[
        "learning-rate-too-high"
    ] is None  # fmt: skip


def test_a_process_that_was_ended_has_lost_its_last_steps() -> None:
    """The rank that a library aborts is recorded up to a step or two before the collective in which it waited."""
    ended = finding("killed", 7, ranks=[0], ending=Ending("Ended by a signal", "signal"))
    hang = finding("rank-hang", 9, ranks=[1])
    assert causes(ended, hang) == {"killed": "rank-hang", "rank-hang": None}
    assert causes(replace(ended, ending=None), hang)["killed"] is None


def test_what_began_later_is_no_reason_to_doubt_the_order_of_two_causes() -> None:
    """A loss that is not finite makes a plateau scheduler cut the rate; a rate that leapt before it did not follow."""
    found = [finding(name, 201) for name in ("learning-rate-too-high", "learning-rate-schedule")]
    told = causes(*found, finding("loss-nonfinite", 209))
    assert (told["learning-rate-too-high"], told["learning-rate-schedule"]) == ("learning-rate-schedule", None)


def test_a_mask_the_wrong_way_round_leaves_nothing_to_look_at_in_a_row_without_padding() -> None:
    effect, turned = finding("validation-nonfinite", 375), frozenset({"padding-seen"})
    assert causes(effect, finding("constant-output", 1, traits=turned))[effect.rule] == "constant-output"
    assert causes(effect, finding("constant-output", 1))[effect.rule] is None


@pytest.mark.parametrize("trait", ["reason-known", "padding-seen"])
def test_what_keeps_an_output_constant_explains_the_plateau(trait: Trait) -> None:
    """Both name each other as a cause: at the same step the catalogue decides, unless one says what keeps it so."""
    plateau, constant = finding("loss-plateau", 1), finding("constant-output", 1)
    assert causes(plateau, constant) == {"loss-plateau": None, "constant-output": "loss-plateau"}
    constant = replace(constant, traits=frozenset({trait}))
    assert causes(plateau, constant) == {"loss-plateau": "constant-output", "constant-output": None}


def test_a_target_network_alone_explains_a_loss_that_runs_away_by_its_statistics() -> None:
    """Statistics that only a validation uses do no harm to the training."""
    unset, diverged = finding("unset-running-state", 1, severity="warning"), finding("loss-divergence", 25)
    assert causes(unset, diverged)["loss-divergence"] is None
    known = replace(unset, traits=frozenset({"of-targets"}))
    assert causes(known, diverged)["loss-divergence"] == "unset-running-state"


def test_untrained_tokens_and_unset_statistics_explain_that_nothing_tells_inputs_apart() -> None:
    tokens, plateau = finding("new-tokens-untrained", 1, RUN, severity="warning"), finding("loss-plateau", 1, RUN)
    assert causes(tokens, plateau)["loss-plateau"] == "new-tokens-untrained"
    constant = finding("constant-output", 200, RUN)
    for severity, cause in (("warning", "unset-running-state"), ("info", None)):  # a sanity pass alone harms nothing
        unset = finding("unset-running-state", 1, RUN, severity=severity)
        assert causes(unset, constant)["constant-output"] == cause


@pytest.mark.parametrize("cut", [True, False])
def test_what_keeps_a_loss_up_explains_what_a_plateau_cut_and_no_other_schedule(cut: bool) -> None:
    rate = finding("learning-rate-schedule", 300, traits=frozenset({"cut-at-a-plateau"} if cut else ()))
    assert causes(finding("loss-broadcast", 1), rate)["learning-rate-schedule"] == ("loss-broadcast" if cut else None)


@pytest.mark.parametrize(
    ("name", "message", "spoken_of"),
    [
        ("KeyError", "'tok100'", True),
        ("ClientConnectionError", "the server is gone", True),
        ("RuntimeError", "Caught KeyError in DataLoader worker process 0.", True),
        ("RuntimeError", "The size of tensor a (3) must match the size of tensor b (4)", True),
        ("RuntimeError", "Expected all tensors to be on the same device", True),
        ("RuntimeError", "probability tensor contains either `inf`, `nan` or element < 0", False),
        ("ValueError", "loss exploded at the key error threshold", False),
    ],
)
def test_exceptions_of_names_and_shapes_speak_of_no_numbers(name: str, message: str, spoken_of: bool) -> None:
    assert no_numbers.spoken_of(name, message) is spoken_of


def test_inputs_of_two_ranges_explain_what_validation_measures_and_no_other_plateau() -> None:
    ranges = finding("input-normalization", 1, traits=frozenset({"two-ranges"}))
    plateau = finding("loss-plateau", 1)
    stands = replace(plateau, traits=frozenset({"in-validation"}))
    for effect, cause in ((stands, ranges.rule), (plateau, None), (finding("overfitting", 9), ranges.rule)):
        assert causes(ranges, effect)[effect.rule] == cause
        assert causes(replace(ranges, traits=frozenset()), effect)[effect.rule] is None
