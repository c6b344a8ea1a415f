"""partial-seeding: the script seeds one global generator of random numbers, and data or model draw from another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold, missing
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Evidence, Finding

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

NAMES = {"python": "Python's random", "numpy": "NumPy's np.random", "torch": "torch"}
DROPPED = {  # statements that make a generator with a seed, and keep it nowhere
    "python": r"^random\.Random\(",
    "numpy": r"^(?:np|numpy)\.random\.(?:default_rng|RandomState|Generator)\(",
    "torch": r"^torch\.Generator\(",
}
SEEDS = {"python": "random.seed(seed)", "numpy": "np.random.seed(seed)", "torch": "torch.manual_seed(seed)"}


def check(process: Process, limits: Limits) -> Outcome:
    """Generators that were seeded, against those that samples, steps and weights drew from in the training process."""
    if "seeding" not in process.signals:
        return missing(process, "events.kind")
    events = process.events_of("seeded")
    seeded = {row["name"] for row in events}  # or perhaps: nobody is accused of what cannot be seen
    known = {row["name"] for row in events if row["value"] != 0} & set(NAMES)
    if not known:
        return Skipped("the script seeds no global generator", "not-applicable")
    batches, steps = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0)
    for row in process.tables["fetches"].records():
        if row["worker"] is None:  # Torch seeds those of workers.
            for name in set((row["moved"] or "").split()) & set(NAMES):
                batches[name] += row["batches"]
    for row in process.events_of("drawn"):
        if row["name"] in steps:  # by the loop itself, or for batches that it makes
            steps[row["name"]] = int(row["value"] or 0)
    used = {name for name in NAMES if batches[name] >= limits["batches"] or steps[name] >= limits["steps"]}
    unseeded = [name for name in NAMES if name in used and name not in seeded]
    weights = sum(row["weights"] for row in process.tables["initializations"].records())
    if "torch" not in seeded and "torch" not in unseeded and weights >= limits["weights"]:
        unseeded.append("torch")
    if not unseeded:
        return Passed("the generators that data and weights are seen to come from are seeded")
    kept_nowhere = script_lines.only(process, "seed", "|".join(DROPPED[name] for name in unseeded))
    return [_finding(process, unseeded, sorted(known), batches, steps, weights, kept_nowhere, limits)]


def _finding(
    process: Process,
    unseeded: list[str],
    seeded: list[str],
    batches: dict[str, int],
    steps: dict[str, int],
    weights: int,
    dropped: Location | None,
    limits: Limits,
) -> Finding:
    name = unseeded[0]
    looped = [one for one in unseeded if steps[one] and not batches[one]]
    drawn = [f"samples of {batches[one]:,} batches were made with {NAMES[one]}" for one in unseeded if batches[one]]
    drawn += [f"{steps[one]} of the first 11 steps drew from {NAMES[one]}" for one in looped]
    drawn += [f"{weights:,} weights were initialised with torch"] if "torch" in unseeded and weights else []
    evidence = [
        Evidence(f"made with {NAMES[one]}", batches[one], "batches", *limits.against("batches"))
        for one in unseeded
        if batches[one]
    ] + [Evidence(f"drew from {NAMES[one]}", steps[one], "steps", *limits.against("steps")) for one in looped]
    return Finding(
        rule=RULE.id,
        severity="info",
        confidence="likely",
        title=f"{NAMES[name]} is used and not seeded, while {' and '.join(NAMES[one] for one in seeded)} "
        f"{'is' if len(seeded) == 1 else 'are'}",
        summary=(
            f"The script seeds {' and '.join(NAMES[one] for one in seeded)}. But {'; '.join(drawn)}, without a seed. "
            "Another run of the script will not give the same numbers."
            + (
                f" Line {dropped.line} makes a generator with a seed and drops it: that seeds no other."
                if dropped
                else ""
            )
        ),
        fix="Seed every generator that the training draws from, in one place.",
        fix_code="\n".join(SEEDS[one] for one in unseeded),
        evidence=[*evidence, Evidence("seeded", ", ".join(seeded))],
        location=dropped or script_lines.seeds(process),
        false_alarm="A seed used only to draw one data set; unusual seeding of Python before torch was imported.",
    )


RULE = Rule(
    id="partial-seeding",
    family="data",
    severity="info",
    title="Some random generators are seeded, but others are used",
    about="Seeding makes a run repeatable only if every generator in use is seeded.",
    check=check,
    verify="Two runs of the script print the same losses.",
    absent="The script seeds no global generator of random numbers.",
    needs=(("events.kind",),),
    thresholds=(
        Threshold("batches", 4, "batches", "as many as are looked at in each pass: they are no single draw"),
        Threshold("steps", 8, "steps", "nearly each of the first 11: logging or a line search draws now and then"),
        Threshold("weights", 1, "tensors", "weights that torch.nn.init filled come from torch's generator"),
    ),
    not_when="Scripts without any seed, workers of a loader, which torch seeds, generators of a dataset's own.",
    references=("https://docs.pytorch.org/docs/stable/notes/randomness.html",),
)
