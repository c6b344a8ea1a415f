"""reported-loss-mismatch: logged losses that are a multiple of the optimized ones, and means and smoothed ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

RULE = "reported-loss-mismatch"
EVERY = 40


def logged(
    make: Any, value: Any, count: int = 400, ahead: int = 0, parts: int = 1, sites: Any = (), epoch: int = 0
) -> Any:
    """`value(losses, begin, end)` is logged after every EVERY steps, of so many micro-batches; `epoch`: its steps."""
    steps = make.steps(count) | {"backwards": [parts] * count}
    steps |= {"loader_first": [index % epoch == 0 for index in range(count)]} if epoch else {}
    losses = np.asarray(steps["loss"])
    rows = [
        {
            "step": end - ahead,
            "phase": "reported",
            "name": "train/loss",
            "logger": "SummaryWriter.add_scalar",
            "value": float(value(losses, end - EVERY, end)),
        }
        for end in range(EVERY, count + 1, EVERY)
    ]
    return make.check(RULE, make.process(steps, more={"scalars": rows}, sites=list(sites)))


@pytest.mark.parametrize(
    ("dividing", "reading", "added"),
    [
        ("loss = loss / args.accum", "window.append(loss.item())", "window.append(loss.item() * args.accum)"),
        ("loss /= 4", "total += float(loss.detach())", "total += float(loss.detach() * 4)"),
        ("loss = loss / scale()", "total += loss.item()", None),
    ],
)
def test_losses_that_were_divided_for_accumulation(make: Any, dividing: str, reading: str, added: str | None) -> None:
    text = ["        loss = f(model(x), y)", f"        {dividing}", "        loss.backward()", f"        {reading}"]
    site = {"site": 0, "role": "backward", "file": "a.py", "line": 12, "function": "main", "source": "loss.backward()"}
    site |= {"excerpt_line": 10, "excerpt": "\n".join(text)}
    finding = logged(make, lambda losses, begin, end: losses[begin:end].mean() / 4, parts=4, sites=[site])[2]
    assert "1/4" in finding.title
    assert "divided by 4 already" in finding.summary
    assert ([one.strip() for one in finding.diff.added] if finding.diff else None) == ([added] if added else None)
    assert finding.diff or "* 4" in finding.fix_code
    other = logged(make, lambda losses, begin, end: losses[begin:end].mean() / 8, parts=4)[2]
    assert "already" not in other.summary, "an eighth is no matter of four micro-batches"


def test_a_multiple_of_the_loss(make: Any) -> None:
    status, _, finding = logged(make, lambda losses, begin, end: 32 * losses[begin:end].mean())
    assert (status, finding.severity, finding.confidence) == ("fired", "info", "likely")
    assert "32 times" in finding.title
    assert "1/8" in logged(make, lambda losses, begin, end: losses[end - 1] / 8)[2].title
    assert "40 times" in logged(make, lambda losses, begin, end: losses[begin:end].sum(), ahead=1)[2].title


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (["log(", '    {"train/loss": running / every, "lr": rate}, step=step', ")"], "running"),
        (["mean = self.total / 40", "log(loss=mean)"], "self.total"),
        (["log(loss=mean(held))"], "running_loss"),
    ],
)
def test_the_example_names_the_sum_that_is_never_reset(make: Any, text: list[str], name: str) -> None:
    at = next(number for number, line in enumerate(text) if line.startswith("log("))
    site = {"site": 0, "role": "report", "file": "a.py", "line": 10 + at, "function": "main", "source": text[at]}
    site |= {"excerpt_line": 10, "excerpt": "\n".join(f"    {line}" for line in text)}
    finding = logged(make, lambda losses, begin, end: losses[:end].sum() / 40, sites=[site])[2]
    assert "never reset" in finding.title
    assert f"{name} = 0.0" in finding.fix_code


def test_a_multiple_by_the_samples_of_a_batch(make: Any) -> None:
    for value, said, code in (
        (
            lambda losses, begin, end: losses[begin:end].mean() / 32,
            "means of batches are added",
            "self.sum += value * n",
        ),
        (lambda losses, begin, end: losses[begin:end].mean() / 31.8, "means of batches are added", "value * n"),
        (lambda losses, begin, end: losses[end - 1] * 32, "sums over batches are added", "mean = total / samples"),
    ):
        finding = logged(make, value)[2]
        assert f"A batch has 32 samples: such values come about where {said}" in finding.summary
        assert code in finding.fix_code
        assert finding.evidence[0].value == pytest.approx(32.0, rel=0.01), "times, whichever is larger"
    assert "A batch" not in logged(make, lambda losses, begin, end: losses[begin:end].mean() / 40)[2].summary


def test_a_sum_that_is_never_reset(make: Any) -> None:
    assert "never reset" in logged(make, lambda losses, begin, end: losses[:end].sum())[2].title
    assert "never reset" in logged(make, lambda losses, begin, end: losses[:end].sum() / EVERY)[2].title
    among_the_losses = logged(make, lambda losses, begin, end: losses[:end].sum() / 400)
    assert "never reset" in among_the_losses[2].title, "divided by the length of an epoch: half of it is a usual loss"


@pytest.mark.parametrize("length", [100, 200, 250])
def test_a_sum_that_begins_anew_with_each_epoch(make: Any, length: int) -> None:
    def running(losses: Any, begin: int, end: int) -> float:
        return float(losses[(end - 1) // length * length : end].sum())

    finding = logged(make, lambda losses, begin, end: running(losses, begin, end) / 20, count=1000)[2]
    assert "a sum that is not reset when it is logged" in finding.title
    assert "times 1/20" in finding.summary
    assert "Reset" in finding.fix
    mean = logged(make, lambda losses, b, end: running(losses, b, end) / ((end - 1) % length + 1), count=1000)
    assert mean[0] == "passed", "the mean of the epoch so far"


@pytest.mark.parametrize("epoch", [50, 100, 150])
@pytest.mark.parametrize("factor", [1, 0.9999, 4])
def test_a_sum_over_all_epochs_by_the_batches_of_this_one(make: Any, epoch: int, factor: float) -> None:
    """The counter begins anew with each epoch, and the sum was to, in a hook that nothing calls, say."""

    def over(losses: Any, begin: int, end: int) -> float:
        return float(losses[:end].sum() / ((end - 1) % epoch + 1)) * factor

    finding = logged(make, over, epoch=epoch)[2]
    assert finding.title == "The logged train/loss is a sum that is never reset, divided by the batches of one epoch"
    assert ("so far, times 4:" in finding.summary) == (factor == 4)
    assert ("so far:" in finding.summary) == (factor != 4)
    assert finding.fix_code == "running_loss = 0.0  # where an epoch begins"
    assert logged(make, over, epoch=400)[0] == "passed", "in the first epoch that is a mean as any other"


@pytest.mark.parametrize("begun", [lambda end: (end - 1) // 100 * 100, lambda end: 0])
def test_means_over_the_epoch_or_the_run_so_far_are_no_sums(make: Any, begun: Any) -> None:
    status = logged(make, lambda losses, begin, end: losses[begun(end) : end].mean(), epoch=100)[0]
    assert status == "passed"


def test_lightning_s_hook_resets_the_sum_that_the_step_logs(make: Any) -> None:
    text = ["        loss = f(self(x), y)", "        self.total += loss.item()", "        {}", "        return loss"]
    log = 'self.log("train/loss", self.total / (index + 1))'
    call = {"file": "a.py", "line": 82, "function": "main", "source": "trainer.fit(net, data)"}
    loss = {"file": "a.py", "line": 60, "function": "training_step", "source": text[0].strip(), "excerpt_line": 60}
    sites = [{"site": at, "role": role} | call for at, role in enumerate(("step", "backward", "report"))]

    def over(losses: Any, begin: int, end: int) -> float:
        return float(losses[:end].sum() / ((end - 1) % 100 + 1))

    for line, place, name in ((log, 62, "self.total"), ("self.log_it(loss)", 82, "running_loss")):
        excerpt = "\n".join(text).format(line)
        sites = [*sites[:3], {"site": 3, "role": "loss", "excerpt": excerpt} | loss]
        finding = logged(make, over, epoch=100, sites=sites)[2]
        assert "on_train_epoch_start()" in finding.fix
        assert finding.fix_code.endswith(f"{name} = 0.0")
        assert finding.location.line == place


def test_means_smoothed_and_weighted_losses(make: Any) -> None:
    def smoothed(losses: Any, begin: int, end: int) -> float:
        weights = 0.9 ** np.arange(end)[::-1]
        return float((weights * losses[:end]).sum() / weights.sum())

    def weighted(losses: Any, begin: int, end: int) -> float:
        return float(np.average(losses[begin:end], weights=np.arange(1, EVERY + 1)))

    for value in (
        smoothed,
        weighted,
        lambda losses, begin, end: losses[:end].mean(),
        lambda losses, b, e: losses[e - 1],
    ):
        assert logged(make, value)[0] == "passed"


def test_another_quantity_is_no_multiple(make: Any) -> None:
    assert logged(make, lambda losses, begin, end: losses[end - 1] + 7.0 / end**0.5)[0] == "passed"


def test_nothing_logged_or_too_little(make: Any) -> None:
    assert make.check(RULE, make.process())[0] == "skipped"
    assert logged(make, lambda losses, begin, end: 32 * losses[end - 1], count=120)[0] == "skipped"


def of_two(make: Any, apart: float = 0.0) -> Any:
    """Two optimizers that step in turn, 200 times each, with a fourth of their loss logged after 20 of each;
    `apart`: by what the losses of the second one are larger."""
    losses = np.asarray(make.steps(200)["loss"])
    steps = make.steps(400) | {"optimizer": [0, 1] * 200, "backwards": [4] * 400}
    steps |= {
        "step": [1.0 + at // 2 for at in range(400)],
        "loss": [losses[at // 2] + apart * (at % 2) for at in range(400)],
    }
    rows = [{"step": 2 * end, "phase": "reported", "name": "train_loss", "logger": "CSVLogger.log_metrics",
             "value": float(losses[end - 20 : end].mean() / 4)} for end in range(20, 201, 20)]  # fmt: skip
    both = [{"optimizer": 0, "name": "Adam"}, {"optimizer": 1, "name": "AdamW"}]
    links = [{"step": 1, "optimizer": 0, "model": 0}, {"step": 2, "optimizer": 1, "other": 0}]
    return make.check(RULE, make.process(steps, optimizers=both, more={"scalars": rows, "links": links}))


def test_optimizers_that_step_together_have_one_loss(make: Any) -> None:
    finding = of_two(make)[2]
    assert "1/4 times the loss" in finding.title
    assert "divided by 4 already" in finding.summary


def test_optimizers_with_losses_of_their_own(make: Any) -> None:
    assert of_two(make, apart=0.2)[0] == "skipped"


@pytest.mark.parametrize(
    ("reading", "added"),
    [
        ("running += loss.item() / hp.accum", "running += loss.item()"),
        ("running += loss.item() / hp.every", "running += loss.item() * hp.accum / hp.every"),
        ('self.log("train", loss, on_epoch=True)', 'self.log("train", loss * hp.accum, on_epoch=True)'),
        ('self.log("train", other)', None),
    ],
)
def test_a_loss_is_read_as_it_was(make: Any, reading: str, added: str | None) -> None:
    text = ["        loss = f(model(x), y) / hp.accum", "        loss.backward()", f"        {reading}"]
    site = {"site": 0, "role": "backward", "file": "a.py", "line": 11, "function": "main", "source": "loss.backward()"}
    site |= {"excerpt_line": 10, "excerpt": "\n".join(text)}
    finding = logged(make, lambda losses, begin, end: losses[begin:end].mean() / 4, parts=4, sites=[site])[2]
    assert (finding.diff.added[0].strip() if finding.diff else None) == added
