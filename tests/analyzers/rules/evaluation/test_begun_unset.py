"""Parameters that are filled, before training, with what a model answers whose normalisations no batch had set."""

from __future__ import annotations

from typing import Any

import pytest

ASKS = "z = self.net.encoder(x)"
CENTRES = [
    "self.net.eval()",
    ASKS,
    "km = KMeans(8).fit(z.numpy())",
    "self.centers = nn.Parameter(torch.from_numpy(km.cluster_centers_))",
]
IN_BATCHES = [
    "codes = []",
    "for x in loader:",
    "    codes.append(encoder(x))",
    "codes = torch.cat(codes)",
    "found = kmeans(codes, 64)",
    "codebook.weight.data.copy_(found)",
]
MAIN = ["model.prepare(x)", "model.pretrain(loader)", "model.refine(loader)"]


def judged(make: Any, body: list[str], main: list[str], asks: str = ASKS, trainings: int = 2, **evals: Any) -> Any:
    """A run whose function `prepare` asks the model at one line, and whose `main` calls functions in this order."""
    text = ["def prepare(self, x):", *(f"    {line}" for line in body), ""]
    text += [
        "def pretrain(self, loader):",
        "    optimizer.step()",
        "",
        "def main():",
        *(f"    {line}" for line in main),
    ]
    where = {"file": "t.py", "excerpt": "\n".join(text), "excerpt_line": 1}
    at = next(number for number, line in enumerate(text, 1) if line.strip() == asks)
    step = text.index("    optimizer.step()") + 1
    sites = [
        {"site": 2, "role": "forward", "function": "prepare", "line": at, "source": asks, **where},
        {"site": 3, "role": "step", "function": "pretrain", "line": step, "source": "optimizer.step()", **where},
        {"site": 4, "role": "save", "function": "main", "line": len(text), "source": main[-1], **where},
    ]
    columns = make.evals(5, 40)
    columns |= {"after_step": [0, 40, 80, 120, 160], "model": [0] * 5, "trained": [True] * 5, "optimizer": [0] * 5}
    columns |= {"site": [2, 9, 9, 9, 9], "losses": [0, 1, 1, 1, 1], "forwards": [1] * 5, **evals}
    unset = {"model": 0, "of": 2, "spectral": 0, "training": False}
    rows = [unset | {"step": 0, "modules": 2, "call": 1}, unset | {"step": 40, "modules": 0, "call": 2}]
    optimizers = [{"optimizer": 0, "name": "Adam", "site": 3}, {"optimizer": 1, "name": "Adam"}][:trainings]
    more = {"unset": rows, "links": [{"step": 1, "optimizer": 0, "model": 0}]}
    steps = make.steps() | {"optimizer": [0] * 200 + [trainings - 1] * 200}
    process = make.process(steps, sites=sites, evals=columns, optimizers=optimizers, more=more)
    return make.check("unset-running-state", process)


@pytest.mark.parametrize(
    ("body", "asks", "said"),
    [
        (CENTRES, ASKS, "Line 5 makes self.centers of its answers"),
        (IN_BATCHES, "codes.append(encoder(x))", "Line 7 makes codebook.weight of its answers"),
        ([ASKS, "layer.weight.data = kmeans(z)"], ASKS, "Line 3 makes layer.weight of its answers"),
    ],
)
def test_parameters_that_begin_from_an_unset_model(make: Any, body: list[str], asks: str, said: str) -> None:
    status, _, finding = judged(make, body, MAIN, asks)
    assert (status, finding.severity) == ("fired", "warning")
    assert said in finding.summary
    assert "Before the first step" in finding.summary
    assert "both of its batch normalisations" in finding.summary
    assert finding.location.source == MAIN[0]
    assert [line.strip() for line in finding.diff.added] == [MAIN[1], MAIN[0]]


@pytest.mark.parametrize(
    ("main", "edit", "code"),
    [
        (["model.prepare(x)", "for _ in range(2):", "    model.pretrain(loader)"], False, "model.pretrain(loader)\n"),
        (["found = model.prepare(x)", "model.pretrain(loader)"], False, "model.pretrain(loader)\n"),
        (["model.prepare(x)", "trainer.fit(model)"], False, "# above line"),
        (["model.prepare(x)", "net.train()", "net.pretrain(loader)"], True, "net.train()\nnet.pretrain(loader)\n"),
    ],
)
def test_a_call_that_is_not_moved(make: Any, main: list[str], edit: bool, code: str) -> None:
    finding = judged(make, CENTRES, main)[2]
    assert finding.location.source == main[0]
    assert (finding.diff is not None) == edit
    assert code in finding.fix_code


def test_behind_the_only_training_parameters_would_train_no_more(make: Any) -> None:
    finding = judged(make, CENTRES, ["model.prepare(x)", "model.pretrain(loader)"], trainings=1)[2]
    assert (finding.location.source, finding.diff) == ("model.prepare(x)", None)
    assert "let the model run over the data in train mode" in finding.fix


def test_a_function_that_trains_as_well_is_not_moved(make: Any) -> None:
    body = [ASKS, "self.centers = nn.Parameter(kmeans(z))", "self.pretrain(loader)"]
    finding = judged(make, body, ["model.prepare(x)"])[2]
    assert (finding.location.source, finding.diff) == (ASKS, None)
    assert "# above line 2\nmodel.train()" in finding.fix_code


@pytest.mark.parametrize(
    ("body", "evals"),
    [
        ([ASKS, "print(F.mse_loss(z, x))"], {}),  # a sanity pass
        (
            [ASKS, "score = LogisticRegression().fit(z, y).score(z, y)", "print(score)"],
            {},
        ),  # what it is worth untrained
        ([ASKS, "self.bank.copy_(z)"], {}),  # a memory of features, which training renews
        ([ASKS, "self.scale = nn.Parameter(torch.ones(8))"], {}),  # of nothing that was asked
        ([ASKS, "self.center = z.mean(0)"], {}),  # a point that no optimizer moves, chosen from a random network
        (CENTRES, {"site": [2, 2, 9, 9, 9]}),  # asked there again, once it is trained
        (CENTRES, {"trained": [False] * 5}),  # a network for features, which nothing trains
    ],
)
def test_what_no_parameter_begins_from(make: Any, body: list[str], evals: Any) -> None:
    assert judged(make, body, MAIN, **evals)[0] == "passed"
