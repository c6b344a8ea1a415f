"""Models that give one answer to everything, or whose layers say nothing, and the healthy look-alikes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tracelyze.testing import SITES

COUNT = 400
LOOKS = [1, 2, 11, 16, 24, 36, 54, 81, 121, 181, 271, 391]


def answers(
    make: Any, ratio: float, loss: Any = None, function: str = "mse_loss", sites: Any = None, **more: Any
) -> Any:
    at = [*range(20), 250, *more.pop("also_at", ()), 390]
    rows = [
        {"step": step, "function": function, "site": 1, "training": True, "input_shape": "32x3", "value": 1.0,
         "varies": ratio * 2.0, "target_varies": 2.0} | more
        for step in at
    ]  # fmt: skip
    flat = np.random.default_rng(0).normal(1.0, 0.02, COUNT).tolist()
    steps = make.steps() | {"loss": flat if loss is None else loss}
    process = make.process(steps, sites=[*SITES, *(sites or ())], more={"loss_calls": rows})
    return make.check("constant-output", process)


def test_one_answer_to_everything(make) -> None:
    status, _, finding = answers(make, 0.01)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "says nothing about the targets" in finding.fix, "a model learns one batch by heart whatever its labels are"
    assert "of them late enough to be judged, all like this" in [one.name for one in finding.evidence]
    assert "is the frequencies of the classes" in answers(make, 0.01, function="cross_entropy")[2].summary
    pixels = answers(make, 0.01, function="binary_cross_entropy_with_logits")[2].summary
    assert "is the mean of the targets" in pixels, "pixels and the like are no classes"
    slow = answers(make, 0.01, loss=np.linspace(1.06, 1.0, COUNT).tolist())[2].summary
    assert "The whole loss was 1.03 halfway and is 1.01 at the end." in slow, "it still falls"
    assert "dead" not in slow
    bounds = {"mse_loss": "a hundredth", "cross_entropy": "0.25%"}
    for function, squared in bounds.items():
        assert squared in answers(make, 0.01, function=function)[2].evidence[0].source


def test_one_answer_where_two_arrays_are_each_shuffled(make: Any) -> None:
    text = "def load(x, y, gen):\n    x = x[torch.randperm(len(x))]\n    y = y[torch.randperm(len(y))]"
    where = {"role": "split", "file": "data.py", "function": "load", "excerpt": text, "excerpt_line": 1}
    sites = [where | {"site": 60 + at, "line": at, "source": text.splitlines()[at - 1].strip()} for at in (2, 3)]
    finding = answers(make, 0.01, sites=sites)[2]
    assert (finding.location.file, finding.location.line) == ("data.py", 3)
    assert "line 3 shuffles y, each into an order of its own" in finding.summary
    assert finding.fix_code.splitlines()[0] == "order = torch.randperm(len(x))"
    assert answers(make, 0.01)[2].fix.startswith("Print a few inputs with their targets")


def coded(make: Any, *last: str, made_by: str = "Embedding", caller: str = "out = decoder(code)") -> Any:
    """One answer to everything, beside a line that compares codes with what they stand for; and what follows there."""
    losses = "book = F.mse_loss(code, h.detach()) + 0.25 * F.mse_loss(h, code.detach())"
    text = [
        "def forward(self, h):",
        "    code = self.codes(near(h))",
        f"    {losses}",
        *(f"    {line}" for line in last),
    ]
    where = {"file": "vq.py", "function": "forward", "line": 3, "source": losses}
    site = where | {"site": 80, "role": "loss", "excerpt": "\n".join(text), "excerpt_line": 1}
    call = where | {"site": 81, "role": "training-call", "line": 40, "source": caller, "function": "train"}
    rows = [
        {"step": step, "function": "mse_loss", "site": one, "training": True, "input_shape": "32x3", "value": 1.0}
        | {"varies": 0.0, "target_varies": 2.0, "made_by": by}
        for step in [*range(20), 250, 390]
        for one, by in ((1, "Addmm"), (80, made_by))
    ]
    flat = np.random.default_rng(0).normal(1.0, 0.02, COUNT).tolist()
    process = make.process(make.steps() | {"loss": flat}, sites=[*SITES, site, call], more={"loss_calls": rows})
    return make.check("constant-output", process)[2]


def test_codes_that_pass_no_gradient_on(make: Any) -> None:
    finding = coded(make, "return code, book")
    assert "no recorded line passes one on from code to h" in finding.summary
    assert (finding.location.line, finding.diff.added[1:]) == (3, ["    code = h + (code - h).detach()"])
    assert "less weight" not in finding.fix


@pytest.mark.parametrize(
    "line",
    ["code = h + (code - h).detach()", "return h + code.detach() - h.detach(), book", "code = h + (code - h).data"],
)
def test_codes_behind_a_straight_through_estimator(make: Any, line: str) -> None:
    for finding in (coded(make, line, "return code, book"), coded(make, "return code, book", caller=line)):
        assert "quantizer" not in finding.summary


def test_what_is_no_code_or_is_not_handed_on(make: Any) -> None:
    """Two views that are compared in turn; and codes that are only compared."""
    assert "quantizer" not in coded(make, "return code, book", made_by="Addmm").summary
    assert "quantizer" not in coded(make, "return book").summary


def viewed(make: Any, view: str, *more: str, sizes: str = "b, t, h, d = q.shape") -> Any:
    text = ["def forward(self, q):", f"    {sizes}", f"    {view}", *(f"    {line}" for line in more)]
    site = {"site": 80, "role": "attention", "file": "net.py", "function": "forward", "line": 3, "source": view}
    return answers(make, 0.01, sites=[site | {"excerpt": "\n".join(text), "excerpt_line": 1}])[2]


@pytest.mark.parametrize(
    ("view", "swapped"),
    [
        ("q = q.view(b, h, t, d)", "q = q.transpose(1, 2)"),
        ("q = q.reshape(b, h, t, -1)", "q = q.transpose(1, 2)"),
        ("q = q.view(t, b, h, d)", "q = q.transpose(0, 1)"),
    ],
)
def test_a_view_in_place_of_a_transpose(make: Any, view: str, swapped: str) -> None:
    finding = viewed(make, view, "k = k.view(b, h, s, d)", "out = attend(q, k)", "return out.view(b, t, -1)")
    assert (finding.location.file, finding.location.line) == ("net.py", 3)
    assert finding.fix_code.splitlines()[0] == swapped
    assert "q has the sizes [b, t, h, d]" in finding.summary
    if "(b, h" in view:
        assert "Do the same in line 4. Swap them back in line 6" in finding.fix
        assert finding.fix_code.endswith("return out.transpose(1, 2).reshape(b, t, -1)")


@pytest.mark.parametrize(
    ("view", "sizes"),
    [
        ("q = q.view(b, t, h, d)", "b, t, h, d = q.shape"),
        ("q = q.view(b, t, -1)", "b, t, h, d = q.shape"),
        ("q = q.view(b * t, h, d)", "b, t, h, d = q.shape"),
        ("q = q.view(b, h, t, d)", "b, t, h, d = k.shape"),  # of another tensor
        ("q = q.transpose(1, 2).reshape(b, h, t, d)", "b, t, h, d = q.shape"),
        ("q = q.view(b, h, t, d)", "b, t, h, d = q.shape\n    q = q.transpose(1, 2)"),
        ("q = q.view(b, d, t, h)", "b, t, h, d = q.shape"),  # not two that were swapped
    ],
)
def test_views_that_keep_the_order_or_are_not_known(make: Any, view: str, sizes: str) -> None:
    assert "stay where they are" not in viewed(make, view, sizes=sizes).summary


def vae(
    make: Any,
    divergence: str,
    recon: str = "recon = F.mse_loss(out, x)",
    shape: str = "32x1x8x8",
    apart: list[dict[str, Any]] | None = None,
    **more: Any,
) -> Any:
    """What is said of a VAE with one answer to everything, by the statements of its loss and lines `apart`."""
    text = f"def elbo(out, x, mu, logvar):\n    {recon}\n    {divergence}\n    return recon + kl"
    site = {"site": 70, "role": "loss", "file": "vae.py", "function": "elbo", "line": 2, "source": recon}
    sites = [site | {"excerpt": text, "excerpt_line": 1}, *(apart or [])]
    more = {"reduction": "mean", "input_shape": shape, "target_varies": 2.0} | more
    return answers(make, 0.01, sites=sites, site=70, **more)[2]


TOTAL = "kl = -0.5 * torch.sum(1 + logvar - mu ** 2 - logvar.exp())"
BY_SAMPLES = f"{TOTAL}\n    kl = kl / x.size(0)"
OF_EACH_SAMPLE = "kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(dim=1).mean()"


@pytest.mark.parametrize(
    ("divergence", "edited"),
    [
        (OF_EACH_SAMPLE, 'recon = F.mse_loss(out, x, reduction="sum") / out.size(0)'),
        ("kl = -0.5 * torch.sum(1 + logvar - mu ** 2 - logvar.exp())", 'recon = F.mse_loss(out, x, reduction="sum")'),
        (BY_SAMPLES, 'recon = F.mse_loss(out, x, reduction="sum") / out.size(0)'),
        (f"{TOTAL}\n    kl /= x.shape[0]", 'recon = F.mse_loss(out, x, reduction="sum") / out.size(0)'),
        (f"{TOTAL} / len(x)", 'recon = F.mse_loss(out, x, reduction="sum") / out.size(0)'),
    ],
)
def test_a_mean_reconstruction_beside_a_summed_divergence(make: Any, divergence: str, edited: str) -> None:
    finding = vae(make, divergence)
    assert "mean over the 64 elements of each sample, the KL in line 3 is a sum" in finding.summary
    assert finding.diff.added == [f"    {edited}"]
    assert (finding.location.line, finding.first_step) == (2, 1)
    assert "other terms of the loss" in [one.name for one in finding.evidence], "it explains a plateau"


@pytest.mark.parametrize(
    ("line", "summed", "divided"),
    [
        ("return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())", "a sum over the batch", ""),
        ("return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / len(mu)", "a sum.", " / out.size(0)"),
        ("return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / mu.numel()", "", ""),
    ],
)
def test_a_divergence_in_a_function_of_its_own(make: Any, line: str, summed: str, divided: str) -> None:
    own = {"site": 71, "role": "divergence", "file": "vae.py", "function": "spread_of", "line": 40, "source": line}
    own |= {"excerpt": f"def spread_of(mu, logvar):\n    {line}", "excerpt_line": 39}
    finding = vae(make, "kl = spread_of(mu, logvar)", apart=[own])
    assert f"the KL in line 40 is {summed}" in finding.summary if summed else "the KL" not in finding.summary
    edited = finding.diff.added if finding.diff else []
    assert edited == [f'    recon = F.mse_loss(out, x, reduction="sum"){divided}'] * bool(summed)
    assert vae(make, "kl = distance(mu, logvar)", apart=[own]).diff is None, "which it does not call"


@pytest.mark.parametrize(
    ("value", "divergence", "changed", "status"),
    [
        (0.0625, OF_EACH_SAMPLE, {}, "fired"),  # that of the mean of the targets
        (0.066, OF_EACH_SAMPLE, {}, "fired"),
        (0.04, OF_EACH_SAMPLE, {}, "passed"),  # a third is explained
        (0.12, OF_EACH_SAMPLE, {}, "passed"),  # it has yet to come down
        (0.0625, "kl = (1 + logvar - mu.pow(2) - logvar.exp()).mean() * -0.5", {}, "passed"),
        (0.0625, OF_EACH_SAMPLE, {"reduction": "sum"}, "passed"),
        (0.0625, OF_EACH_SAMPLE, {"loss": np.linspace(2.0, 1.0, COUNT).tolist()}, "passed"),  # it still falls
    ],
)
def test_reconstructions_that_follow_what_is_drawn(make, value: float, divergence: str, changed, status: str) -> None:
    text = f"def elbo(out, x, mu, logvar):\n    recon = F.mse_loss(out, x)\n    {divergence}\n    return recon + kl"
    site = {"site": 70, "role": "loss", "file": "vae.py", "function": "elbo", "line": 2, "excerpt": text}
    sites = [site | {"excerpt_line": 1, "source": "recon = F.mse_loss(out, x)"}]
    more = {
        "reduction": "mean",
        "input_shape": "32x1x8x8",
        "target_varies": 2.0,
        "value": value,
        "also_at": [300],
    } | changed
    got, _, finding = answers(make, 0.2, sites=sites, site=70, **more)
    assert got == status
    if finding is not None:
        assert "as one answer to everything, comes to about 0.0625. The reconstructions differ" in finding.summary
        assert "by 20% of what these do, by what the model draws. The reconstruction is a mean" in finding.summary
        assert finding.diff.added == ['    recon = F.mse_loss(out, x, reduction="sum") / out.size(0)']
        assert finding.verify.endswith("falls below that of the mean of the targets.")


LOSSES = """\
criterion = nn.BCELoss()

class Divergence(nn.Module):
    def forward(self, mu, logvar):
        return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())

divergence = Divergence()"""


def test_a_divergence_and_a_reconstruction_that_are_modules(make: Any) -> None:
    own = {"site": 71, "role": "divergence", "file": "vae.py", "function": "forward", "line": 44}
    own |= {"source": LOSSES.splitlines()[4].strip(), "excerpt": LOSSES, "excerpt_line": 40}
    finding = vae(make, "kl = divergence(mu, logvar)", recon="recon = criterion(out, x)", apart=[own])
    assert "the KL in line 44 is a sum over the batch" in finding.summary
    assert (finding.location.line, finding.diff.added) == (40, ['criterion = nn.BCELoss(reduction="sum")'])
    other = own | {"excerpt": LOSSES.replace("divergence = ", "penalty = ")}
    assert vae(make, "kl = divergence(mu, logvar)", recon="recon = criterion(out, x)", apart=[other]).diff is None


def test_a_division_of_what_is_only_reported(make: Any) -> None:
    divergence = (
        "kl = -0.5 * torch.sum(1 + logvar - mu ** 2 - logvar.exp())\n    (recon + kl).backward()\n    total += kl / 9"
    )
    backward = {
        "site": 72,
        "role": "backward",
        "file": "vae.py",
        "function": "elbo",
        "line": 4,
        "source": "l.backward()",
    }
    assert vae(make, divergence, apart=[backward]).diff is not None
    assert vae(make, divergence).diff is None


@pytest.mark.parametrize(
    ("below", "edited"),
    [
        ("return recon + kl, recon, kl / len(x)", True),
        ('return {"loss": recon + 0.5 * kl, "kl": kl / len(x)}', True),
        ('self.log("kl", kl / len(x))', True),
        ("return recon, kl / 9", False),
        ("return recon + kl / 9, kl", False),
        ("losses.append(kl / 9)", False),
    ],
)
def test_a_division_beside_the_loss(make: Any, below: str, edited: bool) -> None:
    """Of what is handed back or logged beside the sum. Another one may balance the two."""
    finding = vae(make, f"{TOTAL}\n    {below}")
    added = finding.diff.added if finding.diff else None
    assert added == (['    recon = F.mse_loss(out, x, reduction="sum")'] if edited else None)


def test_a_divergence_that_is_no_larger_than_the_reconstruction(make: Any) -> None:
    for finding in (
        vae(make, OF_EACH_SAMPLE.replace(".sum(dim=1)", "")),  # both are means
        vae(make, OF_EACH_SAMPLE.replace(".mean()", ".mean() / x[0].numel()")),
        vae(make, OF_EACH_SAMPLE, reduction="sum"),
        vae(make, f"{TOTAL} / x.numel()"),
        vae(make, f"{TOTAL}\n    recon = recon / x.size(0)"),
        vae(make, f"{BY_SAMPLES} / 64"),
        vae(make, OF_EACH_SAMPLE, shape="32x4"),
        vae(make, "kl = (mu.exp() + 1).sum()"),  # no such divergence
    ):
        assert "KL in line" not in finding.summary
        assert finding.diff is None


def test_answers_that_differ(make) -> None:
    assert answers(make, 0.5)[0] == "passed"
    assert answers(make, 0.2)[0] == "passed", "much noise, something learned"
    assert answers(make, 0.06, function="binary_cross_entropy_with_logits")[0] == "passed", "clicks are mostly chance"
    assert answers(make, 0.03, function="binary_cross_entropy_with_logits")[0] == "fired"
    assert answers(make, 0.01, loss=np.linspace(2, 0.5, COUNT).tolist())[0] == "passed", "slow to begin"
    assert answers(make, 0.01, loss=np.geomspace(1, 1e6, COUNT).tolist())[0] == "passed", "it diverges"
    assert answers(make, 0.01, loss=np.linspace(-1, -3, COUNT).tolist())[0] == "passed", "below zero it falls, too"
    assert answers(make, 0.01, target_varies=0.0)[0] == "skipped", "targets that are all alike"
    assert answers(make, 0.01, function="cross_entropy", input_shape="32x5000")[0] == "skipped", "tokens"
    steps = make.steps() | {"optimizer": [index % 2 for index in range(COUNT)]}
    two = make.process(steps, optimizers=[{"optimizer": 0}, {"optimizer": 1}], more={"loss_calls": [
        {"step": 1, "function": "mse_loss", "training": True, "varies": 0.0, "target_varies": 1.0}]})  # fmt: skip
    assert make.check("constant-output", two)[0] == "skipped", "a discriminator at equilibrium"
    assert make.check("constant-output", make.process())[0] == "skipped"


def coder(make: Any, validated: float = 0.001, trained: float = 0.3, error: float = 4.0, **more: Any) -> Any:
    """A reconstruction of 16 values whose targets differ by 2 from sample to sample: the best constant has an error of
    0.25, of which `error` is a multiple of 1/16."""
    common = {"function": "mse_loss", "site": 1, "reduction": "mean", "input_shape": "32x16", "target_varies": 2.0,
              "training": True, "value": error / 16, "varies": trained * 2.0}  # fmt: skip
    held_out = {"training": False, "value": 0.26, "varies": validated * 2.0}
    rows = [common | {"step": step} for step in [*range(20), 250, 390]]
    rows += [common | held_out | {"step": step} for step in (40, 200, 280, 360)] if validated else []
    for row in rows:
        row["target_varies"] = 2.0 / 2**0.5 if row["input_shape"] == "32x16" else 2.0  # 8 of 16 are looked at
    loss = [5.0 - 0.04 * min(step, 100) for step in range(COUNT)]  # of the other term most, which comes to 0.75
    process = make.process(make.steps() | {"loss": loss}, more={"loss_calls": [row | more for row in rows]})
    return make.check("constant-output", process)


def test_one_answer_that_only_validation_shows(make: Any) -> None:
    """What is drawn in training makes the output differ there: the code of a VAE."""
    status, _, finding = coder(make)
    assert (status, finding.confidence) == ("fired", "likely")
    assert "In the validation passes from step 200 on" in finding.summary
    assert "In training they differ by 42% of it" in finding.summary
    assert finding.evidence[0].name.endswith("targets, in validation")
    assert coder(make, validated=0.3)[0] == "passed", "it reconstructs what it validates"
    assert coder(make, error=1.0)[0] == "passed", "in training it reconstructs, too: its eval mode is at fault"
    assert coder(make, validated=0.0)[0] == "passed", "no validation: noise may be all that differs, or not"
    assert coder(make, function="cross_entropy", input_shape="32x16")[0] != "fired"


def two_measures(make: Any, differ: float, **more: Any) -> Any:
    """Training computes a cross-entropy of pixels, and validation the squared error of the same predictions."""
    common = {"function": "binary_cross_entropy", "site": 1, "reduction": "mean", "input_shape": "32x16"}
    common |= {"target_varies": 2.0, "training": True, "value": 0.41, "varies": differ * 2.0}
    held_out = {"function": "mse_loss", "site": 2, "training": False, "value": 0.26, "varies": 0.0002}
    rows = [common | {"step": step} for step in [*range(20), 250, 390]]
    rows += [common | held_out | more | {"step": step} for step in (40, 200, 280, 360)]
    process = make.process(make.steps() | {"loss": [0.42] * COUNT}, more={"loss_calls": rows})
    return make.check("constant-output", process)


def test_one_answer_that_validation_measures_in_another_way(make: Any) -> None:
    """Predictions that differ by a twentieth of what the targets do explain a tenth of them at most."""
    status, _, finding = two_measures(make, 0.06)
    assert status == "fired"
    assert "In training they differ by 6% of it, by what the model draws there (codes, dropout). " in finding.summary
    assert two_measures(make, 0.2)[0] == "passed", "in training it may explain much of them"
    assert two_measures(make, 0.06, input_shape="32x9")[0] == "passed", "other predictions"
    assert two_measures(make, 0.06, varies=0.5)[0] == "passed"
    assert two_measures(make, 0.06, function="cross_entropy")[0] == "passed"


def test_a_term_that_another_one_swamps(make) -> None:
    whole = np.linspace(1e6, 1e3, COUNT).tolist()  # falls by the other term, of which this one is a thousandth at most
    status, _, finding = answers(make, 0.01, loss=whole)
    assert (status, "another term swamps it" in finding.summary) == ("fired", True)
    assert "at the start" in finding.fix
    assert "another term" not in answers(make, 0.01)[2].summary, "the whole loss is flat"
    assert answers(make, 0.5, loss=whole)[0] == "passed"
    assert answers(make, 0.01, loss=np.linspace(20, 5, COUNT).tolist())[0] == "passed", "a task that is slow to begin"
    assert answers(make, 0.01, loss=whole, value=None)[0] == "passed"


def test_a_term_that_was_given_up_for_the_others(make) -> None:
    whole = [4.0] * 30 + [1.001] * (COUNT - 30)  # the others come down to nothing, and this one stays
    finding = answers(make, 0.01, loss=whole)[2]
    assert "In the first steps the error of the predictions was 25% of it" in finding.summary
    assert "In a VAE" in finding.fix
    for other in ([1.001] * COUNT, [4.0] * COUNT):  # never were there others; they are still there
        assert "In the first steps" not in answers(make, 0.01, loss=other)[2].summary


def test_a_small_term_that_was_learned_in_place_of_this_one(make) -> None:
    """The rate of a bottleneck, summed over the batch: a twentieth of the loss at first, and soon nothing."""
    whole = [1.06] * 9 + [1.004] * (COUNT - 9)
    status, _, finding = answers(make, 0.01, loss=whole)
    assert (status, finding.first_step) == ("fired", 1)
    assert "The other terms, 5.7% of it in the first steps, came down to next to nothing" in finding.summary
    half = answers(make, 0.01, loss=[1.06] * 9 + [1.03] * (COUNT - 9))[2]
    assert "in the first steps" not in half.summary, "the others were learned no better than this one"
    assert half.first_step == 251, "where it was seen late enough"


def updates(ratios: list[float]) -> list[dict[str, Any]]:
    return [
        {"time": 0.05 * step, "step": step, "optimizer": 0, "parameter": "l.weight", "elements": 256, "lr": 1.0,
         "weight_norm": 1.0, "update_norm": ratio, "grad_finite": True, "grad_norm": 1.0}
        for step, ratio in zip(LOOKS, ratios, strict=True)
    ]  # fmt: skip


def test_a_loss_that_never_gets_below_its_start(make) -> None:
    noise = np.random.default_rng(0).normal(0, 0.05, COUNT)
    loss = 1.4 + noise
    loss[1:20] *= np.linspace(200, 1, 19)
    large = updates([13.0, 0.7, 0.09, 0.04] + [0.001] * 8)
    process = make.process(make.steps() | {"loss": loss.tolist()}, more={"parameters": large})
    status, _, finding = make.check("learning-rate-too-high", process)
    assert (status, finding.confidence) == ("fired", "likely")
    assert "did not stay clearly below its start" in finding.title
    usual = updates([0.5] + [0.003] * 11)  # a layer that begins at zero
    process = make.process(make.steps() | {"loss": (1.4 + noise).tolist()}, more={"parameters": usual})
    assert make.check("learning-rate-too-high", process)[0] == "passed", "data that say nothing, at a sound rate"
    process = make.process(make.steps(), more={"parameters": large})
    assert make.check("learning-rate-too-high", process)[0] == "passed", "it learns"


@pytest.mark.parametrize(("tensors", "highest", "status"), [(2, 1.1, "passed"), (2, 3.0, "fired"), (4, 1.1, "fired")])
def test_a_probe_of_features_that_say_nothing(make, tensors: int, highest: float, status: str) -> None:
    """A single layer begins at the loss of a guess and stays there; its rate is high, and harms nothing."""
    loss = np.full(COUNT, 1.38)
    loss[:4] = [1.39, 1.39 * highest, 1.4, 1.39]
    steps = make.steps() | {"loss": loss.tolist(), "parameters": [tensors] * COUNT}
    more = {"parameters": updates([0.25, 0.15, 0.12] + [0.001] * 9)}
    assert make.check("learning-rate-too-high", make.process(steps, more=more))[0] == status
    level = steps | {"loss": [1.38] * COUNT}
    assert make.check("learning-rate-too-high", make.process(level, more=more))[0] == "passed", "it never rose"


def test_first_updates_after_which_the_model_gives_one_answer(make) -> None:
    """The first loss, of large scores, is far above that of the best constant, at which the run then stays."""
    loss = np.random.default_rng(0).normal(1.6, 0.02, COUNT)
    loss[:30] = np.linspace(4.0, 1.6, 30)

    def judged(varies: float, sizes: list[float]) -> str:
        rows = [
            {"step": step, "function": "cross_entropy", "site": 1, "training": True, "input_shape": "32x10",
             "value": 1.6, "varies": varies, "target_varies": 0.5}
            for step in [*range(20), 250, 390]
        ]  # fmt: skip
        more = {"parameters": updates(sizes), "loss_calls": rows}
        return str(
            make.check("learning-rate-too-high", make.process(make.steps() | {"loss": loss.tolist()}, more=more))[0]
        )

    overwritten = [2.9, 0.6, 0.04] + [0.001] * 9
    assert judged(0.0005, overwritten) == "fired"
    assert judged(0.3, overwritten) == "passed", "it tells samples apart"
    assert judged(0.0005, [0.5] + [0.003] * 11) == "passed", "a sound rate: something else makes it constant"


def test_a_loss_of_exactly_zero_from_the_first_step_on(make) -> None:
    steps = make.steps() | {"grads_zero": [8] * COUNT, "loss": [0.0] * COUNT}
    status, _, finding = make.check("zero-gradients", make.process(steps))
    assert status == "fired"
    assert "exactly 0 from the first step" in finding.summary
    assert "loss that is exactly zero" not in " ".join(finding.excluded), "these steps are what it counts"
    met = steps | {"loss": [1.0] * 9 + [0.0] * (COUNT - 9), "grads_zero": [0] * 9 + [8] * (COUNT - 9)}
    assert make.check("zero-gradients", make.process(met))[0] == "passed", "a hinge that is satisfied"
    policy = steps | {"grads_zero": [0] * COUNT}  # the loss of GRPO reads 0, its gradient is none
    assert make.check("zero-gradients", make.process(policy))[0] == "passed"


def test_spikes_among_few_norms(make) -> None:
    norms: list[float | None] = [None] * COUNT
    random = np.random.default_rng(0)
    for index in range(0, COUNT, 4):
        norms[index] = float(np.exp(random.normal(0, 0.3)))
    for index in (120, 180, 240, 300, 352):
        norms[index] = 80.0
    assert make.check("gradient-spikes", make.process(make.steps() | {"grad_norm": norms}))[0] == "fired"
    heavy = [None if one is None else float(abs(random.standard_t(3)) + 0.5) for one in norms]
    assert make.check("gradient-spikes", make.process(make.steps() | {"grad_norm": heavy}))[0] == "passed"
    known = [index for index, one in enumerate(norms) if one is not None and one < 80.0]
    leaps = {index: float(random.uniform(6, 18)) for index in known[15::12]}  # of a classifier that meets a wrong label
    often = [leaps.get(index, one) for index, one in enumerate(norms)]
    assert make.check("gradient-spikes", make.process(make.steps() | {"grad_norm": often}))[0] == "passed"
    few = [one if index < 160 else None for index, one in enumerate(norms)]
    assert make.check("gradient-spikes", make.process(make.steps() | {"grad_norm": few}))[0] == "skipped"


def units(shares: list[float]) -> list[dict[str, Any]]:
    return [
        {"time": float(step), "step": step, "order": 2, "module": "act", "kind": "ReLU", "zeros": 0.9, "dead": share}
        for step, share in zip(LOOKS, shares, strict=True)
    ]


def test_a_layer_most_of_whose_units_are_dead(make) -> None:
    flat = make.steps() | {"loss": [2.3] * COUNT}
    some = {"parameters": updates([0.001] * 12)}
    process = make.process(flat, more=some | {"activations": units([0.1, 0.3] + [0.95] * 10)})
    status, _, finding = make.check("dead-relu", process)
    assert (status, finding.severity, finding.first_step) == ("fired", "warning", 12)
    for shares in ([0.4] * 12, [0.95, 0.2] * 6, [0.95] * 10 + [0.5] * 2):
        process = make.process(flat, more=some | {"activations": units(shares)})
        assert make.check("dead-relu", process)[0] in ("passed", "skipped")
    low = make.steps() | {"loss": [2.3] * 30 + [0.01] * (COUNT - 30)}
    process = make.process(low, more=some | {"activations": units([0.95] * 12)})
    assert make.check("dead-relu", process)[0] == "passed", "the loss is low: a hinge that is satisfied"


def test_a_loss_that_is_written_out_over_targets_that_nothing_foretells(make: Any) -> None:
    """Returns of a stock: their mean is the right answer. What an input foretells, a model is to answer."""
    count = len(make.steps()["loss"])
    for same, expected in ((0.85, "fired"), (0.2, "skipped")):
        rows = [
            {"function": "written out", "site": 3, "training": True, "step": count * look // 12, "input_shape": "64x1",
             "target_shape": "64x1", "varies": 0.02, "target_varies": 1.0, "column_rows": 64.0, "columns": 8.0,
             "column_same": same, "column_other": 0.1}
            for look in range(12)
        ]  # fmt: skip
        process = make.process(make.steps() | {"loss": [1.0] * count}, more={"loss_calls": rows})
        assert make.check("constant-output", process)[0] == expected
