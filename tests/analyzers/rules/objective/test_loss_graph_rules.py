"""Rules about the operations behind a loss: masks behind a softmax, weights of a policy's loss."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.analyzers.sites import sites_of
from tracelyze.analyzers import diagnose
from tracelyze.analyzers.computed.optimization import style
from tracelyze.testing import SITES

MASK, ADVANTAGE = "mask-after-softmax", "zero-advantage"


def process(make: Any, rows: list[dict[str, Any]], steps: Any = None) -> Any:
    return make.process(steps, more={"loss_graphs": [{"step": 5 * n, "site": 1, **row} for n, row in enumerate(rows)]})


def masked(rows: float, regularly: float = 1.0, count: int = 4) -> list[dict[str, Any]]:
    return [{"softmaxes": 2.0, "masked_rows": rows, "masked_regularly": regularly}] * count


def weights(*zero: float) -> list[dict[str, Any]]:
    return [{"weights": 64.0, "weights_zero": one, "weights_negative": 0.4 * (1 - one)} for one in zero]


def test_attention_that_is_masked_behind_its_softmax(make: Any) -> None:
    status, _, finding = make.check(MASK, process(make, masked(0.9)))
    assert (status, finding.severity, finding.confidence, finding.location.line) == ("fired", "warning", "certain", 41)
    assert "mask == 0" in finding.fix_code, "for masks of numbers as well"
    assert "in 90% of the rows of the layer that loses most" in finding.summary
    assert "comes later" not in finding.summary, "it may be a mask of padding"
    mixed = make.check(MASK, process(make, [*masked(0.92), *masked(0.98, count=1)]))[2]
    assert "In the 5 batches looked at" in mixed.summary
    assert "in 92% to 98% of the rows" in mixed.summary
    assert "up to 98% of a batch's rows" in mixed.title
    assert "mask[:, None, None, :]" in finding.fix_code, "a mask of padding has fewer dimensions than the scores"
    assert make.check(MASK, process(make, masked(0.9, count=1)))[2].confidence == "likely"


def test_masks_that_lose_nothing(make: Any) -> None:
    for rows in (masked(0.0), masked(0.9, regularly=0.0), masked(0.01), [*masked(0.0), *masked(0.9, count=2)]):
        assert make.check(MASK, process(make, rows))[0] == "passed"
    assert make.check(MASK, process(make, weights(0.0)))[0] == "skipped"
    assert make.check(MASK, make.process())[0] == "skipped"


def test_advantages_that_are_all_zero(make: Any) -> None:
    still = make.steps() | {"grad_norm": [0.0] * 400}
    for rows, steps, confidence in (
        (weights(*[1.0] * 20), still, "likely"),
        (weights(*[1.0, 0.2, 1.0] * 6), None, "certain"),
    ):
        status, _, finding = make.check(ADVANTAGE, process(make, rows, steps))
        assert (status, finding.severity, finding.confidence) == ("fired", "warning", confidence)
        assert finding.first_step == 1


def test_the_function_that_gives_the_rewards(make: Any) -> None:
    """A library's loop computes the loss, and asks the script for the rewards alone."""
    rows = [{"step": 5 * n, "site": 1, **row} for n, row in enumerate(weights(*[1.0] * 20))]
    trains = {"file": "t.py", "line": 79, "function": "main", "source": "trainer.train()"}
    gives = {"site": 9, "role": "reward", "file": "t.py", "line": 43, "function": "format_reward"}
    gives |= {"source": "def format_reward(completions, **kwargs):"}

    def found(*sites: dict[str, Any]) -> Any:
        steps = make.steps() | {"grad_norm": [0.0] * 400}
        return make.check(ADVANTAGE, make.process(steps, sites=list(sites), more={"loss_graphs": rows}))[2]

    loop = [{"site": 1, "role": "loss", **trains}, {"site": 2, "role": "step", **trains}]
    finding = found(*loop, gives)
    assert finding.location.line == 43
    assert "in format_reward" in finding.fix_code
    assert finding.last_step == 400, "the last look, at step 95, still saw none"
    assert found(*loop).location.line == 79
    assert found(*loop, gives, gives | {"site": 10, "line": 50, "function": "length_reward"}).location.line == 79
    own = loop[1] | {"line": 84, "source": "optimizer.step()"}
    assert found(loop[0], own, gives).location.line == 79, "the script's own loop may weigh by something else"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ('texts = [f"{p.prompt} {completion}" for p, completion in zip(rows, completions)]', 44),
        ("texts = [prompt + answer for prompt, answer in zip(prompts, completions)]", 44),
        ("texts = [completion + end for completion in completions]", 43),
        ("wanted = [solve(prompt) for prompt in prompts]", 43),  # reads the prompts, and does not join them
    ],
)
def test_a_reward_of_the_prompt_and_its_completion_as_one_text(make: Any, body: str, line: int) -> None:
    rows = [{"step": 5 * n, "site": 1, **row} for n, row in enumerate(weights(*[1.0] * 20))]
    trains = {"file": "t.py", "line": 79, "function": "main", "source": "trainer.train()"}
    head = "def format_reward(prompts, completions, **kwargs):"
    gives = {"site": 9, "role": "reward", "file": "t.py", "line": 43, "function": "format_reward", "source": head}
    text = f"{head}\n    {body}\n    return [score(text) for text in texts]\n\nsaid = prompt + completion"
    sites = [{"site": 1, "role": "loss", **trains}, {"site": 2, "role": "step", **trains}]
    sites += [gives | {"excerpt": text, "excerpt_line": 43}]
    steps = make.steps() | {"grad_norm": [0.0] * 400}
    finding = make.check(ADVANTAGE, make.process(steps, sites=sites, more={"loss_graphs": rows}))[2]
    assert finding.location.line == line
    assert ("line 44 joins them with the completions" in finding.fix) is (line == 44)


REWARD = {
    "site": 9,
    "role": "reward",
    "file": "t.py",
    "line": 40,
    "function": "score",
    "source": "def score(texts, y):",
}
COMPARED = REWARD | {"site": 10, "role": "reward-compared", "line": 43, "source": "out.append(float(text == answer))"}
COMPARED |= {"excerpt": f"    {COMPARED['source']}", "excerpt_line": 43}
WEIGHS = {
    "site": 11,
    "role": "advantage",
    "file": "t.py",
    "line": 60,
    "function": "main",
    "source": "adv = r - r.mean()",
}


@pytest.mark.parametrize(
    ("held", "line"),
    [
        ({"weighed": {"r": (0.0, 0.0)}}, 43),
        ({"rewards": {"rewards": (1.0, 0.0)}, "weighed": {"r": (0.3, 0.4), "mask": (1.0, 0.0)}}, 43),
        ({"weighed": {"r": (0.5, 0.5)}}, 60),  # they differ: what is computed of them is wrong
        ({"weighed": {"r": (0.0, 0.0), "mask": (1.0, 0.0)}}, 60),  # which of the two are the rewards?
        ({"rewards": {"total_reward": (0.0, 0.0, "number")}}, 60),
        ({}, 60),
    ],
)
def test_rewards_that_are_all_one_number(make: Any, held: dict[str, Any], line: int) -> None:
    """Then the line is that of the reward function which compares; else that of the advantages."""
    facts = {
        kind: {
            name: {"kind": rest[0] if rest else "elements", "mean": mean, "spread": spread, "count": 8, "sum": 0.0}
            for name, (mean, spread, *rest) in variables.items()
        }
        for kind, variables in held.items()
    }
    rows = [{"step": 5 * n, "site": 1, **row} for n, row in enumerate(weights(*[1.0] * 20))]
    events = [{"step": 5 * n, "kind": "policy-choices", "name": "", "text": json.dumps(facts)} for n in range(20)]
    steps = make.steps() | {"grad_norm": [0.0] * 400}
    sites = [*SITES, REWARD, COMPARED, WEIGHS]
    process = make.process(steps, sites=sites, events=events, more={"loss_graphs": rows})
    finding = make.check(ADVANTAGE, process)[2]
    assert finding.location.line == line
    assert ("print(repr(text), repr(answer))" in finding.fix_code) is (line == 43)
    assert ("whatever was answered" in finding.summary) is (line == 43)


@pytest.mark.parametrize(
    ("above", "line", "said"),
    [
        ("r = match(texts, y)", 59, "Look at what gives r: everything gets 0."),
        ("r = (texts == y).float()", 59, "Look at what line 59 compares: everything gets 0."),
        ("total += 1", 60, "Look at what gives r"),  # the line is not known
    ],
)
def test_equal_rewards_of_no_known_function_are_named_where_they_are_assigned(
    make: Any, above: str, line: int, said: str
) -> None:
    facts = {"weighed": {"r": {"kind": "elements", "mean": 0.0, "spread": 0.0, "count": 8, "sum": 0.0}}}
    rows = [{"step": 5 * n, "site": 1, **row} for n, row in enumerate(weights(*[1.0] * 20))]
    events = [{"step": 5 * n, "kind": "policy-choices", "name": "", "text": json.dumps(facts)} for n in range(20)]
    weighs = WEIGHS | {"excerpt": f"    {above}\n    {WEIGHS['source']}", "excerpt_line": 59}
    steps = make.steps() | {"grad_norm": [0.0] * 400}
    process = make.process(steps, sites=[*SITES, weighs], events=events, more={"loss_graphs": rows})
    finding = make.check(ADVANTAGE, process)[2]
    assert finding.location.line == line
    assert finding.fix.startswith(said)


def test_completions_that_are_all_alike(make: Any) -> None:
    """Greedy decoding, as generate() without do_sample does it, writes the same completion for a prompt each time."""

    writes = {"site": 9, "role": "forward", "file": "t.py", "line": 60, "function": "rollout",
              "source": "out = model.generate(prompts)"}  # fmt: skip
    answers = writes | {"site": 10, "line": 72, "function": "accuracy"}
    measures = answers | {"site": 11, "role": "measured", "line": 75, "source": "return (out == y).float().mean()"}

    def told(prints: str, width: int = 13, prompts: int = 7) -> str:
        row = {"field": "input_ids", "dtype": "int64", "prints": prints, "shape": f"6x{width}", "trained": True}
        given = row | {"shape": f"6x{prompts}", "trained": False, "prints": "a a a b b b"}
        mask = row | {"field": "attention_mask", "prints": "m m m m m m"}
        batches = [{"step": step, **one} for step in range(0, 100, 5) for one in (given, row, mask)]
        graphs = [{"step": 5 * n, "site": 1, **one} for n, one in enumerate(weights(*[1.0, 0.2, 1.0] * 6))]
        tables = {"loss_graphs": graphs, "batches": batches}
        finding = make.check(ADVANTAGE, make.process(sites=[*SITES, writes, answers, measures], more=tables))[2]
        assert (finding.location.line == 60) == ("do_sample=True" in finding.fix)
        return str(finding.fix)

    assert "do_sample=True" in told("d d d e e e")
    for elsewhere in (told("d d f e e e"), told("d f g e h i"), told("a a a b b b", width=7)):
        assert "Print the rewards" in elsewhere, "states that come again, and completions that differ"


@pytest.mark.parametrize(
    ("prints", "default", "line", "said"),
    [
        ("{n} {n} {n}", "temperature=0.0", 57, "out = policy.generate(prompts, temperature=1.0)"),  # few are compared
        ("{n} {n} {n}", "temperature: float = 0", 57, "out = policy.generate(prompts, temperature=1.0)"),
        ("{n} {n} {n}", "temperature=1.0", 57, ""),
        ("m m m", "temperature=0.0", 60, "rewards"),  # a mask, the same in each batch
        ("{n} {n}x {n}y", "temperature=0.0", 60, "rewards"),
    ],
)
def test_completions_of_a_function_of_the_script_that_are_all_alike(
    make: Any, prints: str, default: str, line: int, said: str
) -> None:
    """It does not take the arguments that a library's generate() takes; what it decodes by is in its head."""
    text = "    out = policy.generate(prompts)\n    r = reward(out)\n    b = r.view(4, 8)\n    adv = b - b.mean()"
    computed = {"site": 9, "role": "advantage", "file": "t.py", "line": 60, "function": "rl", "excerpt_line": 57}
    head = f"    def generate(self, prompts, {default}):"
    defined = {"site": 8, "role": "forward", "file": "t.py", "line": 21, "function": "generate", "excerpt_line": 20}
    sites = [computed | {"source": "adv = b - b.mean()", "excerpt": text},
             defined | {"source": "logits = self(ids)", "excerpt": f"{head}\n        logits = self(ids)"}]  # fmt: skip
    batches = []
    for step in range(0, 100, 5):
        row = {"step": step, "field": "0", "dtype": "int64", "shape": "6x13", "trained": True}
        batches += [
            row | {"prints": prints.format(n=f"p{step}")},
            row | {"shape": "6x7", "trained": False} | {"prints": "a a a"},
        ]
    graphs = [{"step": 5 * n, "site": 1, **one} for n, one in enumerate(weights(*[1.0] * 18))]
    process = make.process(sites=[*SITES, *sites], more={"loss_graphs": graphs, "batches": batches})
    finding = make.check(ADVANTAGE, process)[2]
    assert (finding.location.line, "do_sample" in finding.fix) == (line, False)
    assert said in finding.fix_code


@pytest.mark.parametrize(
    "rows",
    [
        weights(*[0.0] * 20),  # mu = 1: the loss reads 0, its weights do not
        weights(*[0.9] * 20),  # most prompts are solved
        weights(*[1.0, 0.0, 0.5] * 8),  # some steps have nothing to learn from
        weights(*[0.1] * 10, *[1.0] * 30),  # solved on the way
    ],
)
def test_advantages_that_are_not(make: Any, rows: list[dict[str, Any]]) -> None:
    assert make.check(ADVANTAGE, process(make, rows))[0] == "passed"


def test_a_mask_that_lets_no_sample_through(make: Any) -> None:
    """Of pseudo-labels, none is sure enough at first, and the labelled samples train the model."""
    status, reason, _ = make.check(ADVANTAGE, process(make, weights(*[1.0] * 20)))
    assert (status, "may be a mask" in reason) == ("skipped", True)


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        ({"ratio_one": True}, "fired"),
        ({"entropy": 1.2, "most": 1.4, "punished": -1.0}, "fired"),
        ({"both_signs": False}, "skipped"),
        (None, "fired"),  # a line of the script gives a name to advantages
    ],
)
def test_a_policy_with_other_terms_in_its_loss(make: Any, facts: dict[str, Any] | None, status: str) -> None:
    rows = [{"step": 5 * n, "site": 1, **row} for n, row in enumerate(weights(*[1.0] * 20))]
    events = [{"kind": "policy-loss", "step": 5, "text": json.dumps(facts)}] if facts else []
    line = {"site": 9, "role": "advantage", "file": "a.py", "line": 4, "source": "adv = rewards - mean"}
    process = make.process(events=events, sites=[] if facts else [line], more={"loss_graphs": rows})
    found, _, finding = make.check(ADVANTAGE, process)
    assert found == status
    assert status == "skipped" or "other terms" in finding.summary


def test_a_policy_after_a_training_of_another_kind(make: Any) -> None:
    zero = [0] * 200 + [8] * 200
    steps = make.steps() | {"optimizer": [0] * 200 + [1] * 200, "step": [*range(1, 201)] * 2, "grads_zero": zero}
    links = [{"time": 0.1, "step": 1, "optimizer": n, "model": 0} for n in (0, 1)]
    optimizers = [{"optimizer": n, "name": name} for n, name in enumerate(("AdamW", "SGD"))]
    rows = [{"step": 202 + 5 * n, "site": 1, **row} for n, row in enumerate(weights(*[1.0] * 20))]
    process = make.process(steps, optimizers=optimizers, more={"links": links, "loss_graphs": rows})
    finding = make.check(ADVANTAGE, process)[2]
    assert (finding.first_step, finding.trainings) == (1, ["training 2 of 2"])
    assert {one.rule: one.caused_by for one in diagnose(make.run(process)).findings}["zero-gradients"] == ADVANTAGE


def test_too_few_steps_and_no_policy(make: Any) -> None:
    assert make.check(ADVANTAGE, process(make, weights(1.0, 1.0)))[0] == "skipped"
    assert make.check(ADVANTAGE, process(make, masked(0.0)))[0] == "skipped"
    assert make.check(ADVANTAGE, make.process())[0] == "skipped"


def test_without_advantage_there_are_no_gradients(make: Any) -> None:
    """Which of the two is the cause."""
    steps = make.steps() | {"grads_zero": [8] * 400}
    rows = [{"step": 5 * n, "site": 1, **row} for n, row in enumerate(weights(*[1.0] * 20))]
    findings = diagnose(make.run(make.process(steps, more={"loss_graphs": rows}))).findings
    assert {one.rule: one.caused_by for one in findings}["zero-gradients"] == ADVANTAGE


def played(make: Any, **more: list[dict[str, Any]]) -> bool:
    """Whether a training whose model is called by single samples between its steps is one of reinforcement."""
    evals = make.evals(100, 4)
    evals |= {"losses": [0] * 100, "loader": [None] * 100, "forwards": [16] * 100, "samples": [16] * 100}
    return style.acts(make.process(evals=evals, more=more))


def test_what_makes_a_training_one_of_reinforcement(make: Any) -> None:
    call = {"step": 1, "function": "smooth_l1_loss", "site": 1, "training": True, "made_by": "Gather"}
    assert played(make), "nothing says what its loss is"
    classes = call | {"function": "cross_entropy", "made_by": "Addmm"}
    assert not played(make, loss_calls=[classes]), "it may measure its accuracy"
    assert played(make, loss_calls=[call | {"made_whole": True}])
    assert not played(make, loss_calls=[call | {"made_by": "Addmm", "made_whole": True}])
    assert played(make, loss_graphs=[{"step": 1, **row} for row in weights(0.0)])
    assert style.acts(process(make, weights(0.0, 0.0))), "advantages, whatever is called between the steps"
    assert not style.acts(process(make, masked(0.0)))


@pytest.mark.parametrize("signs", [True, False])
def test_a_critic_beside_a_policy_has_no_minimum(make: Any, signs: bool) -> None:
    """Both are trainings of their own where they share nothing, and a critic's loss rises as rewards get larger."""
    steps = {"optimizer": [0.0, 1.0] * 400, "time": [float(one) for one in range(800)]}
    steps |= {"loss": [one for n in range(400) for one in (max(2.0, 10 - n / 10) + max(0, n - 100) / 20, 0.01)]}
    links = [{"optimizer": one, "model": one, "step": one} for one in (0, 1)]
    optimizers = [{"optimizer": one, "site": None, "backward_site": None} for one in (0, 1)]
    events = [{"kind": "policy-loss", "step": 1, "text": json.dumps({"both_signs": signs})}]
    process = make.process(steps, more={"links": links, "optimizers": optimizers, "events": events})
    critic = process.trainings[0]
    assert len(process.trainings) == 2
    assert style.values_a_policy(critic) == signs
    assert ("a policy trains beside it" in (style.unjudgeable(critic.longest) or "")) == signs
    assert make.check("loss-divergence", critic)[0] == ("skipped" if signs else "fired")


def attention(over: float, summed: float, count: int = 4) -> list[dict[str, Any]]:
    return [
        {"products": 2.0, "products_wrong": 2.0 * (over != summed), "softmax_axis": over, "summed_axis": summed}
    ] * count


def test_attention_over_the_queries(make: Any) -> None:
    for over in (-2.0, -3.0):
        status, reason, finding = make.check("softmax-wrong-dim", process(make, attention(over, -1.0)))
        assert status == "fired", reason
        assert (finding.severity, finding.confidence, finding.location.line) == ("critical", "likely", 41)


@pytest.mark.parametrize(
    ("source", "summed", "example", "edited"),
    [
        ("self.softmax = nn.Softmax(dim=0)", -2.0, "self.softmax = nn.Softmax(dim=-2)", True),  # pooling: [B, T, 1]
        ("self.softmax = nn.Softmax(0)", -1.0, "self.softmax = nn.Softmax(-1)", True),
        (
            "self.softmax = make(config)",
            -2.0,
            "# your own names in place of: scores, weights\nweights = scores.softmax(dim=-2)",
            False,
        ),
    ],
)
def test_the_softmax_gets_the_dimension_that_is_summed_over(
    make: Any, source: str, summed: float, example: str, edited: bool
) -> None:
    rows = [{"step": step, "site": 1, **row} for step, row in enumerate(attention(-3.0, summed))]
    layers = [{"time": 0.1, "step": 1, "order": 1, "module": "pool.softmax", "kind": "Softmax"}]
    sites = [
        {"site": 1, "role": "module", "line": 44, "function": "__init__", "source": source},
        {"site": 2, "role": "softmax", "line": 47, "function": "forward", "source": "a = self.softmax(s)"},
    ]
    places = [one | {"file": "a.py", "excerpt_line": one["line"], "excerpt": f"  {one['source']}"} for one in sites]
    made = [{"model": 0, "module": "pool.softmax", "made_at": 1}]
    process = make.process(sites=places, more={"loss_graphs": rows, "activations": layers, "modules": made})
    finding = make.check("softmax-wrong-dim", process)[2]
    assert (finding.fix_code, finding.diff is not None, finding.location.line) == (example, edited, 44)
    assert not any(one.fires_at for one in finding.evidence if "dimension" in one.name), "neither side is a bad one"


def test_attention_over_the_keys(make: Any) -> None:
    for rows in (
        attention(-1.0, -1.0),
        attention(-2.0, -2.0),
        attention(-2.0, -1.0, count=1),
        [*attention(-2.0, -1.0), *attention(-1.0, -1.0)],
    ):
        assert make.check("softmax-wrong-dim", process(make, rows))[0] == "passed"


def picks(over: float, count: int = 4) -> list[dict[str, Any]]:
    return [{"picks": 1.0, "picks_wrong": float(over != -1), "picks_softmax": over, "picks_axis": -1.0}] * count


def test_a_likelihood_that_the_script_writes_out(make: Any) -> None:
    status, reason, finding = make.check("softmax-wrong-dim", process(make, picks(-2.0)))
    assert status == "fired", reason
    assert (finding.severity, finding.confidence, finding.location.line) == ("critical", "likely", 41)
    assert "along dimension -1" in finding.summary
    assert make.check("softmax-wrong-dim", process(make, picks(-1.0)))[0] == "passed"
    assert make.check("softmax-wrong-dim", process(make, [*picks(-2.0), *picks(-1.0)]))[0] == "passed"
    assert make.check("softmax-wrong-dim", process(make, picks(-2.0, count=1)))[0] == "skipped"


REWARDING = """\
def answer_reward(completions, solution, **kwargs):
    scores = []
    for text, wanted in zip(completions, solution):
        found = {search}
        if found is None:
            scores.append({nothing})
        else:
            {compare}
    return scores"""


@pytest.mark.parametrize(
    ("search", "compare", "nothing", "text"),
    [
        ("PATTERN.search(text)", "scores.append(1.0 if found.group(1) == wanted else 0.3)", 0.0, "text"),
        (
            're.match(r"(.+)", text.strip())',
            "scores.append(1.0 if found.group(1) == wanted else 0.3)",
            0.0,
            "text.strip()",
        ),
        ("PATTERN.search(text)", "scores.append(1.0 if found.group(1) == wanted else 0.0)", 0.0, ""),  # either
        ("PATTERN.search(text)", "scores.append(float(found.group(1) == wanted))", 0.0, ""),  # either
        ("parse(text)", "scores.append(1.0 if found == wanted else 0.3)", 0.0, ""),
    ],
)
@pytest.mark.parametrize("varies", [False, True])
def test_a_reward_that_looks_for_a_pattern(
    make: Any, search: str, compare: str, nothing: float, text: str, varies: bool
) -> None:
    """The line that looks is named where every logged reward is one number, which no comparison can give."""
    source = REWARDING.format(search=search, compare=compare, nothing=nothing)
    roles = {"reward": "def ", "reward-compared": "== wanted"}
    roles |= {"reward-searched": search} if "parse" not in search else {}
    gives = [one | {"function": "answer_reward", "site": one["site"] + 20} for one in sites_of(source, **roles)]
    trains = {"file": "t.py", "line": 79, "function": "main", "source": "trainer.train()"}
    loop = [{"site": 1, "role": "loss", **trains}, {"site": 2, "role": "step", **trains}]
    rows = [{"step": 5 * n, "site": 1, **row} for n, row in enumerate(weights(*[1.0] * 20))]
    logged = [
        {"time": float(n), "step": 20 * n, "phase": "train", "name": name, "value": value}
        for n in range(5)
        for name, value in (("reward", 0.1 * n * varies), ("reward_std", 0.0))
    ]
    steps = make.steps() | {"grad_norm": [0.0] * 400}
    more = {"loss_graphs": rows, "scalars": logged}
    finding = make.check(ADVANTAGE, make.process(steps, sites=[*loop, *gives], more=more))[2]
    named = bool(text) and not varies
    assert finding.location.line == (4 if named else 1)
    assert ("The mean reward is 0 in 5 logs" in finding.summary) is not varies
    assert (f"print(repr({text}))" in finding.fix_code) == named
    assert "TRL" not in finding.fix


@pytest.mark.parametrize(
    ("adds", "trainer", "looked_for", "names"),
    [
        ("tok.add_tokens(TAGS, special_tokens=True)", "GRPOTrainer(model)", "<answer>", True),
        ('tok.add_tokens(["<answer>", "</answer>"], special_tokens=True)', "RLOOTrainer(model)", "</answer>", True),
        ("tok.add_tokens(TAGS)", "GRPOTrainer(model)", "<answer>", False),  # ordinary ones
        ("tok.add_tokens(TAGS, special_tokens=True)", "MyTrainer(model)", "<answer>", False),  # decodes as it likes
        ("tok.add_tokens(TAGS, special_tokens=True)", "GRPOTrainer(model)", "####", False),  # looks for something else
    ],
)
def test_special_tokens_that_no_reward_function_sees(
    make: Any, adds: str, trainer: str, looked_for: str, names: bool
) -> None:
    """TRL decodes completions without them: the line that adds them is the one to change, of several functions too."""
    looks = f'    return [re.search("{looked_for}", text) for text in texts]'
    head = ['TAGS = ["<answer>", "</answer>"]', f"trainer = {trainer}", "trainer.train()", "def form(texts):"]
    lines = [*head, looks, "def tokenizer():", f"    {adds}"]
    places = {"loss": 3, "step": 3, "reward": 4, "reward-searched": 5}
    sites = [
        {"site": site, "role": role, "file": "t.py", "line": line, "function": "form" if line > 3 else "<module>",
         "source": lines[line - 1].strip(), "excerpt": "\n".join(lines), "excerpt_line": 1}
        for site, (role, line) in enumerate(places.items(), 1)
    ]  # fmt: skip
    rows = [{"step": 5 * n, "site": 1, **row} for n, row in enumerate(weights(*[1.0] * 20))]
    steps = make.steps() | {"grad_norm": [0.0] * 400}
    finding = make.check(ADVANTAGE, make.process(steps, sites=sites, more={"loss_graphs": rows}))[2]
    assert (finding.location.line == 7) is names
    assert ("without special tokens" in finding.fix) is names
    if names:
        assert finding.fix_code == adds.replace("True", "False")


@pytest.mark.parametrize(
    ("adds", "looked_for", "names"),
    [
        ('tok.add_special_tokens({"additional_special_tokens": [OPEN, CLOSE]})', "{OPEN}", "OPEN"),
        ("tok = Tokenizer(additional_special_tokens=[OPEN, CLOSE])", "{OPEN}.*{CLOSE}", "OPEN and CLOSE"),
        ('tok = Tokenizer(extra_special_tokens=["<answer>"])', "<answer>", "'<answer>'"),
        ('tok = Tokenizer(extra_special_tokens=["<answer>"])', "####", ""),
        ("tok = Tokenizer(additional_special_tokens=[TAGS[0], TAGS[1]])", "<answer>", ""),
        ('tok.add_special_tokens({"pad_token": "<pad>"})', "<pad>", ""),
    ],
)
def test_special_tokens_in_a_list_of_their_own(make: Any, adds: str, looked_for: str, names: str) -> None:
    lines = ["trainer = GRPOTrainer(model)", "trainer.train()", "def form(texts):"]
    lines += [f'    return [re.search(rf"{looked_for}", text) for text in texts]', "def tokenizer():", f"    {adds}"]
    places = {"loss": 2, "step": 2, "reward": 3, "reward-searched": 4}
    place = {"file": "t.py", "excerpt": "\n".join(lines), "excerpt_line": 1}
    sites = [
        place | {"site": site, "role": role, "line": line, "source": lines[line - 1].strip()}
        | {"function": "form" if line > 2 else "<module>"}
        for site, (role, line) in enumerate(places.items(), 1)
    ]  # fmt: skip
    rows = [{"step": 5 * n, "site": 1, **row} for n, row in enumerate(weights(*[1.0] * 20))]
    steps = make.steps() | {"grad_norm": [0.0] * 400}
    finding = make.check(ADVANTAGE, make.process(steps, sites=sites, more={"loss_graphs": rows}))[2]
    assert (finding.location.line == 6) is bool(names)
    assert (f"Add {names} as ordinary tokens, and not among the special ones (line 6)" in finding.fix) is bool(names)


def turned(share: float = 1.0, rows: float = 30.0, one: float = 0.0) -> dict[str, float]:
    return {"hiding_rows": rows, "one_id_rows": share, "one_id": one}


def test_a_mask_that_shows_padding_and_hides_the_rest(make: Any) -> None:
    full = {"hiding_rows": 0.0, "one_id_rows": 0.0, "one_id": -1.0}  # a batch without padding
    rows = [turned(), full, turned(), turned()]
    status, _, finding = make.check("constant-output", process(make, rows))
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "certain")
    assert "hides a part of 90 rows of ids" in finding.summary
    assert finding.traits == {"padding-seen"}
    assert finding.diff is None
    for line, edit in (
        ("h = self.encoder(x, src_key_padding_mask=mask)", "h = self.encoder(x, src_key_padding_mask=~mask)"),
        ("h = self.encoder(x, src_key_padding_mask=~pad)", "h = self.encoder(x, src_key_padding_mask=pad)"),
        ("h = self.attend(x, x, x, key_padding_mask=ids != PAD)[0]",
         "h = self.attend(x, x, x, key_padding_mask=ids == PAD)[0]"),
        ("h = self.encoder(x, src_key_padding_mask=mask.bool())",
         "h = self.encoder(x, src_key_padding_mask=~mask.bool())"),
        ("h = self.encoder(x, src_key_padding_mask=padding_of(ids))", ""),  # its text may hold what it is
    ):  # fmt: skip
        site = {"site": 50, "role": "attending-layer", "file": "a.py", "function": "forward", "line": 9, "source": line,
                "excerpt": f"        {line}", "excerpt_line": 9}  # fmt: skip
        run = make.process(more={"loss_graphs": [{"step": n, "site": 1, **row} for n, row in enumerate(rows)]},
                           sites=[*SITES, site])  # fmt: skip
        finding = make.check("constant-output", run)[2]
        assert finding.location.line == 9
        assert (finding.diff.added if finding.diff else []) == ([f"        {edit}"] if edit else [])


@pytest.mark.parametrize(
    "rows",
    [
        [turned(), turned(0.9)],
        [turned(), turned(one=3.0)],
        [turned()],
        [turned(rows=2.0)] * 3,
    ],
)
def test_masks_that_show_other_ids_or_were_hardly_seen(make: Any, rows: list[dict[str, float]]) -> None:
    assert make.check("constant-output", process(make, rows))[0] != "fired"
