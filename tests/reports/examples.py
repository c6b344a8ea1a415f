"""Diagnoses made by hand, one for each shape that a report has to carry."""

from __future__ import annotations

import math
from dataclasses import replace

from tracelyze.diagnosis import (
    Chart,
    Check,
    Cost,
    Diagnosis,
    Diff,
    Evidence,
    Excerpt,
    Exit,
    Finding,
    Line,
    Location,
    Mark,
    RunFacts,
)

from . import pictures

VERSION = "0.1.0"
STEPS = 500
HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<!-- <script> --> ]]> <![CDATA[",
    "[click](https://evil.example) ![x](https://evil.example/x.png) <https://evil.example>",
    "@everyone #1 GH-2 org/repo#3 !4 www.evil.example https://evil.example mailto:a@b.example",
    "\x1b[2J\x1b]8;;https://evil.example\x07owned\x1b]8;;\x07\r\x00",
    "```\n# heading\n~~~\n| a | b |\n--- | ---",
    "safe\u202etxt.exe\u2066 \u2028 \udc80 \ufeff",
    "${alert(1)} {{7*7}} <%= 1 %> $x^2$",
    "x" * 3000,
)


def run_facts(**changes: object) -> RunFacts:
    facts = RunFacts(
        path="runs/train-20261121-101500",
        command=["python", "train.py", "--lr", "3e-4", "--data", "my data/cifar"],
        started_at="2026-11-21T10:15:00Z",
        duration_s=108.4,
        steps=STEPS,
        ranks=1,
        exit=Exit("finished", 0),
        environment={
            "python": "3.12.7",
            "torch": "2.13.0",
            "device": "NVIDIA H200",
            "host": "node-17",
            "cpus": "16",
        },
        notes=[],
        overhead=0.0061,
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def passed(count: int) -> list[Check]:
    known = [
        Check(
            "eval-in-train-mode",
            "passed",
            "12 validation passes ran with all 6 dropout modules in eval mode",
            "Validation runs in train mode",
        ),
        Check(
            "dataloader-bottleneck",
            "passed",
            "the loop waited 1.8% of its step time for data (bar: 10%)",
            "Training waits for its data",
        ),
        Check(
            "memory-leak",
            "passed",
            "allocated memory at the same point of each step: +0.00 MiB/step over 480 steps",
            "Memory grows with every step",
        ),
        Check(
            "no-shuffle",
            "passed",
            "the training loader shuffles (RandomSampler over 50,000 samples)",
            "Training data are not shuffled",
        ),
        Check(
            "update-ratio",
            "passed",
            "median update to weight ratio 0.0011, inside 0.0001 to 0.01",
            "Updates are too large or too small",
        ),
    ]
    more = [
        Check(
            f"check-{index}",
            "passed",
            f"the largest of {index * 37} samples was {index / 7:.2f}, bar 100",
            f"Check {index}",
        )
        for index in range(1, max(0, count - len(known)) + 1)
    ]
    return (known + more)[:count]


SKIPPED = [
    Check("straggler", "skipped", "the run has one rank", "One rank is slower than the others", "not-applicable"),
    Check("ranks-out-of-sync", "skipped", "the run has one rank", "Ranks hold different weights", "not-applicable"),
    Check("rank-hang", "skipped", "the run has one rank", "A rank hangs", "not-applicable"),
    Check("fp16-overflow", "skipped", "the run used no GradScaler", "The loss scale collapses", "not-applicable"),
    Check(
        "host-bound",
        "skipped",
        "a timeline of a few steps is needed",
        "The host is too slow",
        "needs-more",
        "tracelyze collect --profile-every 100 -- python train.py",
    ),
]


def growth() -> Chart:
    """A gradient norm that grows with the step, then by orders of magnitude, then is no number."""
    x = [float(step) for step in range(1, 151)]
    norm = [0.8 * step if step < 96 else 0.8 * 95 * 1.21 ** (step - 95) for step in range(1, 151)]
    own = [1.1 + 0.2 * math.sin(step / 3) for step in range(1, 151)]
    return Chart(
        title="Gradient norm that each step used, and the norm that its own batch gave",
        x_label="optimizer step",
        y_label="gradient norm (log scale)",
        x=x,
        lines=[
            Line("used by the step", [round(value, 4) if step < 131 else None for step, value in enumerate(norm, 1)]),
            Line("of this batch alone", [round(value, 4) if step < 131 else None for step, value in enumerate(own, 1)]),
        ],
        marks=[Mark(2.0, "carried over"), Mark(131.0, "not a number")],
        threshold=100.0,
        threshold_label="100 times the first steps",
        log_y=True,
        over="steps",
    )


def loss() -> Chart:
    x = [float(step) for step in range(1, 151)]
    y = [
        round(
            2.3 * math.exp(-step / 40) + 0.05 * math.sin(step) + (0 if step < 100 else 0.002 * 1.2 ** (step - 100)), 4
        )
        if step < 133
        else math.nan
        for step in range(1, 151)
    ]
    marks = [Mark(133.0, "NaN")]
    return Chart("Training loss", "optimizer step", "loss", x, [Line("loss", y)], marks, shows="loss", over="steps")


SOURCE = [
    "def train_epoch(model, loader, optimizer):",
    "    for images, labels in loader:",
    "        loss = F.cross_entropy(model(images), labels)",
    "        loss.backward()",
    "        optimizer.step()",
    "    return loss.item()",
    "",
]


def chain() -> Diagnosis:
    """One root cause with three consequences, on a run that finished."""
    findings = [
        Finding(
            rule="missing-zero-grad",
            severity="critical",
            confidence="certain",
            title="Gradients are never cleared",
            summary="Every backward pass added its gradients to those of all steps before it. Since step 2 the "
            "optimizer has moved the weights along the sum of the whole past, not along the gradient of its batch.",
            fix="Clear the gradients once per optimizer step, right before the backward pass.",
            fix_code="optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
            first_step=2,
            last_step=500,
            first_second=0.41,
            evidence=[
                Evidence("steps that used gradients of earlier steps", 499, "of 500", 3, "fewer can be an accident"),
                Evidence(
                    "gradient norm at step 95 against step 1",
                    95.2,
                    "\u00d7",
                    10.0,
                    "sum of k gradients: at least √k for noise, k for a steady direction",
                ),
            ],
            cost=Cost(106.2, 0.98),
            location=Location("train.py", 41, "train_epoch", "        loss.backward()"),
            charts=[growth()],
            verify="Run again: this check must pass and the loss fall",
            excerpt=Excerpt(38, SOURCE),
            diff=Diff("train.py", 41, [], ["        optimizer.zero_grad()"]),
            excluded=["Accumulation on purpose: every step has one backward pass", "Bad data: all batches were finite"],
            first_at="2026-11-21T10:15:00.410+00:00",
            false_alarm="If the script adds gradients of several batches on purpose and clears them after the step, "
            "this finding is wrong: please report it.",
        ),
        Finding(
            rule="exploding-gradients",
            severity="critical",
            confidence="certain",
            title="Gradients explode",
            summary="The gradient norm rose from 0.8 to 2.4e+04 between step 96 and step 130.",
            fix="Fix the cause first. If the norm still grows, lower the learning rate or clip the gradients.",
            fix_code="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            first_step=96,
            last_step=500,
            first_second=20.1,
            evidence=[Evidence("gradient norm", math.inf, "", 80.0, "100 times its own early median")],
            caused_by="missing-zero-grad",
            charts=[growth()],
        ),
        Finding(
            rule="nonfinite-gradients",
            severity="critical",
            confidence="certain",
            title="Gradients are not numbers",
            summary="From step 131 on the gradients hold NaN, first in layer4.1.conv2.weight.",
            fix="Fix the cause first.",
            first_step=131,
            last_step=500,
            first_second=27.9,
            evidence=[Evidence("first parameter", "layer4.1.conv2.weight"), Evidence("gradient norm", math.nan)],
            caused_by="exploding-gradients",
        ),
        Finding(
            rule="loss-nonfinite",
            severity="critical",
            confidence="certain",
            title="The loss is not a number",
            summary="The loss is NaN from step 133 on. Every weight that has been updated since then is lost.",
            fix="Go back to a checkpoint from before step 131.",
            first_step=133,
            last_step=500,
            first_second=28.3,
            evidence=[Evidence("loss at step 133", math.nan, "", None, "")],
            cost=Cost(79.8, 0.736),
            caused_by="nonfinite-gradients",
            charts=[loss()],
        ),
    ]
    checks = [Check(finding.rule, "fired", finding.summary, finding.title) for finding in findings]
    return Diagnosis(
        run=run_facts(notes=["Validation was not recorded: the script makes no evaluation pass."]),
        verdict="critical",
        findings=findings,
        checks=checks + passed(31) + SKIPPED,
        charts=[loss(), step_time()],
        tracelyze_version=VERSION,
    )


def step_time() -> Chart:
    x = [float(step) for step in range(0, STEPS, 4)]
    y: list[float | None] = [
        round(0.211 + 0.012 * math.sin(step * 1.7) + (0.3 if step % 100 == 0 else 0), 4) for step in x
    ]
    return Chart("Step time", "optimizer step", "seconds", x, [Line("step", y, "points")], over="steps", unit="s")


def warning() -> Diagnosis:
    """One warning on eight ranks, with a cost and a line."""
    x = [float(step) for step in range(0, 2000, 20)]
    chart = Chart(
        "Share of each step spent waiting for the next batch",
        "optimizer step",
        "share of the step",
        x,
        [Line(f"rank {rank}", [0.42 + 0.03 * math.sin(step / 90 + rank) for step in x], "steps") for rank in range(4)],
        [
            Mark(0.0, "from the start"),
            Mark(400, "epoch 2"),
            Mark(800, "epoch 3"),
            Mark(1200, "epoch 4"),
            Mark(1600, "epoch 5"),
        ],
        threshold=0.1,
        threshold_label="bar",
        over="steps",
        unit="share",
    )
    finding = Finding(
        rule="dataloader-bottleneck",
        severity="warning",
        confidence="likely",
        title="Training waits for its data",
        summary="The training loop spent 42% of its time waiting for the next batch. The loader makes a batch in "
        "61 ms with no workers, the step alone takes 83 ms.",
        fix="Let workers make the batches while the device computes. Two workers are enough for this step time.",
        fix_code="loader = DataLoader(\n    dataset,\n    batch_size=256,\n    shuffle=True,\n    num_workers=2,\n)",
        first_step=0,
        last_step=1999,
        ranks=[0, 1, 2, 3, 5, 6, 7],
        evidence=[
            Evidence("waiting for data", 0.42, "of step time", 0.1, "measured: below 10% the gain is lost in noise"),
            Evidence("num_workers", 0, "", None, "setting, for orientation"),
            Evidence("time to make a batch", 0.061, "s", 0.083, "time of the step alone"),
        ],
        cost=Cost(1210.0, 0.41),
        location=Location(
            "data/loaders.py", 118, "make_loader", "    loader = DataLoader(dataset, batch_size=256, shuffle=True)"
        ),
        charts=[chart],
        false_alarm="If the data come from a live source at a fixed rate, waiting is what the loop should do.",
    )
    return Diagnosis(
        run=run_facts(steps=2000, ranks=8, duration_s=2951.0),
        verdict="warning",
        findings=[finding],
        checks=[
            Check(finding.rule, "fired", finding.summary, finding.title),
            *passed(40)[:1],
            *passed(40)[2:],
            *SKIPPED[3:],
        ],
        charts=[step_time()],
        tracelyze_version=VERSION,
    )


def healthy() -> Diagnosis:
    """Nothing found, most things checked."""
    return Diagnosis(
        run=run_facts(),
        verdict="ok",
        findings=[],
        checks=passed(44) + SKIPPED,
        charts=[replace(loss(), marks=[], lines=[Line("loss", [2.3 * math.exp(-step / 40) for step in range(150)])])],
        tracelyze_version=VERSION,
    )


TRACEBACK = """Traceback (most recent call last):
  File "/home/me/project/train.py", line 88, in <module>
    main(parse_arguments())
  File "/home/me/project/train.py", line 71, in main
    train_epoch(model, loader, optimizer, scheduler, epoch=epoch, clip=arguments.clip, log_every=arguments.log_every)
  File "/home/me/project/train.py", line 44, in train_epoch
    loss.backward()
RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation:
[torch.FloatTensor [64, 128]], which is output 0 of ReluBackward0, is at version 1; expected version 0 instead."""


def crash() -> Diagnosis:
    """A run that died in an exception, with its traceback, beside something worth knowing."""
    findings = [
        Finding(
            rule="crash",
            severity="critical",
            confidence="certain",
            title="A tensor that the backward pass needs was overwritten",
            summary="The run ended at step 12 in a RuntimeError.\n\nThe output of a ReLU was changed in place after "
            "the forward pass, and the backward pass needs it as it was.",
            fix="Write the result to a new tensor instead of changing the old one in place.",
            fix_code="hidden = hidden + residual",
            first_step=12,
            last_step=12,
            first_second=3.1,
            evidence=[Evidence("exception", "RuntimeError"), Evidence("traceback", TRACEBACK)],
            location=Location("/home/me/project/train.py", 31, "forward", "        hidden += residual"),
        ),
        Finding(
            rule="no-validation",
            severity="info",
            confidence="certain",
            title="The run never evaluates",
            summary="No evaluation pass was seen in 12 steps.",
            fix="Evaluate on held-out data now and then.",
        ),
    ]
    facts = run_facts(steps=12, duration_s=3.2, exit=Exit("exception", 1, "RuntimeError"))
    checks = [Check(finding.rule, "fired", finding.summary, finding.title) for finding in findings]
    return Diagnosis(facts, "critical", findings, checks + passed(6) + SKIPPED, [], VERSION)


def empty() -> Diagnosis:
    """A run that recorded nothing."""
    facts = RunFacts("runs/x", [], None, None, 0, 0, Exit("unknown"))
    reason = "Nothing trained in this run: no optimizer took a step."
    return Diagnosis(facts, "unknown", [], [], tracelyze_version=VERSION, verdict_reason=reason)


def many() -> Diagnosis:
    """25 findings: several roots, a rule that fired twice, a cause that is not among the findings."""
    findings = []
    severities = ("critical", "warning", "info")
    for index in range(25):
        findings.append(
            Finding(
                rule="gradient-spikes" if index in (3, 4) else f"rule-{index}",
                severity=severities[min(index // 6, 2)],  # type: ignore[arg-type]
                confidence=("certain", "likely", "possible")[index % 3],  # type: ignore[arg-type]
                title=f"Finding number {index} says in one line what went wrong",
                summary="A summary of two sentences. It gives the number 42 and says since when.",
                fix="Change one thing.",
                first_step=index * 20 if index % 5 else None,
                last_step=None if index % 4 else 480,
                evidence=[Evidence("some number", 10.0**index, "MiB", 10.0, "derivation")],
                cost=Cost(3.0 * index, 0.01 * index) if index % 2 else None,
                caused_by={7: "rule-0", 8: "rule-7", 9: "gradient-spikes", 10: "not-there"}.get(index),
                charts=[step_time()] if index % 3 == 0 else [],
            )
        )
    checks = [Check(finding.rule, "fired", finding.summary, finding.title) for finding in findings]
    facts = run_facts(
        exit=Exit("exception", 1, "RuntimeError: CUDA error: device-side assert triggered"),
        notes=["Rank 3 left no record.", "The recording ends 14 s before the program did."],
        ranks=4,
    )
    return Diagnosis(facts, "critical", findings, checks + passed(20) + SKIPPED, [loss()], VERSION)


def hostile(*texts: str) -> Diagnosis:
    """Every string that a run can reach holds one of `texts`."""
    supply = texts or HOSTILE
    count = 0

    def text() -> str:
        nonlocal count
        count += 1
        return supply[count % len(supply)]

    def chart() -> Chart:
        return Chart(
            text(),
            text(),
            text(),
            [1.0, 2.0, 3.0],
            [Line(text(), [1.0, None, 3.0]), Line(text(), [2.0, 1.0, 0.0])],
            [Mark(1.0, text()), Mark(2.0, text())],
            2.0,
            text(),
        )

    findings = [
        Finding(
            rule=rule,
            severity="critical",
            confidence="certain",
            title=text(),
            summary=text(),
            fix=text(),
            fix_code=text(),
            first_step=1,
            last_step=2,
            evidence=[Evidence(text(), text(), text(), text(), text()) for _ in range(4)],
            location=Location(text(), 7, text(), text()),
            seen_at=Location(text(), 9, text(), text()),
            charts=[chart()],
            false_alarm=text(),
            verify=text(),
            excerpt=Excerpt(6, [text(), text(), text()]),
            diff=Diff(text(), 7, [text()], [text()]),
            excluded=[text(), text()],
            first_at=text(),
            caused_by=cause,
        )
        for rule, cause in (("first-rule", None), ("second-rule", "first-rule"))
    ]
    checks = [
        Check(text(), status, text(), text(), why, text())  # type: ignore[arg-type]
        for status, why in (
            ("fired", None), ("passed", None), ("skipped", "not-applicable"), ("skipped", "needs-more"),
        )
    ]  # fmt: skip
    facts = RunFacts(
        text(),
        [text(), text()],
        text(),
        3.0,
        3,
        1,
        Exit("exception", 1, text()),
        {text(): text(), "x" + text(): text()},
        [text(), text()],
        0.01,
    )
    points = [float(index) for index in range(600)]
    explored = Chart(
        text(), text(), text(), points, [Line(text(), [*points]), Line(text(), points[::-1])], about=text()
    )
    charts = [chart(), explored, pictures.stack(text)]
    return Diagnosis(facts, "critical", findings, checks, charts, text(), picture=pictures.picture(text))


def traced() -> Diagnosis:
    """A profiler trace: nothing but a picture of where the time went."""
    names = iter(
        "Where each step went;step (found by ProfilerStep);computing;idle: waiting for the data loader;idle: other "
        "causes;A typical step: step 6, 100 ms;Of 5 steps the one closest to the middle.;"
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__;aten::stack;volta_sgemm_64x64_nt;Memcpy DtoD;"
        "stream 7, mostly computing;device idle, by cause;main thread;The slowest step: step 8, 100 ms;Of 5 steps the "
        "longest.;enumerate(DataLoader);aten::cat;dgrad_engine;Memset (Device);stream 7;device idle;main thread 2;"
        "Kernels;Over all 6 steps.;dgrad_engine;convolution;Memset (Device);void cudnn::dgrad_engine<float, 512>(int);"
        "and 54 more, 23% of the device time".split(";")
    )
    chart = pictures.stack(lambda: next(names))
    facts = run_facts(path="trace.json.gz", command=[])
    return Diagnosis(facts, "ok", [], passed(6), [chart], VERSION, picture=pictures.picture(lambda: next(names)))


def ranks() -> Diagnosis:
    """Eight ranks, each with a line of its own: a chart worth exploring, with a limit and its healthy side."""
    x = [float(step) for step in range(1, 301)]
    lines = [Line(f"rank {rank}", [0.1 + 0.02 * rank + 0.01 * math.sin(step) for step in x]) for rank in range(8)]
    chart = Chart(
        "Arrival after the first rank", "step", "share", x, lines, [Mark(1.0, "from the start")], 0.2, "limit",
        about="8 ranks", healthy="below", over="steps", unit="share",
    )  # fmt: skip
    finding = Finding(
        rule="straggler",
        severity="warning",
        confidence="likely",
        title="Rank 7 holds up the other 7",
        summary="Every collective waits for rank 7.",
        fix="Move its other load away.",
        first_step=1,
        last_step=300,
        ranks=[7],
        cost=Cost(600.0, 0.2),
        charts=[chart],
    )
    facts = run_facts(steps=300, ranks=8, commit="4be71c9d", clean=False)
    check = Check(finding.rule, "fired", finding.summary, finding.title)
    return Diagnosis(facts, "warning", [finding], [check, *passed(9)], [], VERSION)


ALL = {
    "ranks": ranks,
    "chain": chain,
    "warning": warning,
    "healthy": healthy,
    "crash": crash,
    "empty": empty,
    "many": many,
    "hostile": hostile,
    "traced": traced,
}
