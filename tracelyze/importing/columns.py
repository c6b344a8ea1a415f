"""What the columns of a log mean: which one is the training loss, which are evaluations, which number the steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache, partial

Row = Mapping[str, float | None]

_PHASES: Mapping[str, str] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "validate", "eval", "evaluation", "evaluate", "dev"), "eval"),
    **dict.fromkeys(("test", "testing"), "test"),
}
# Names as Trainer, Lightning, Weights & Biases, TensorBoard, Megatron and hand-written loops have them, as words.
# The first counts. What stands before a slash and says nothing (`optim/lr`, `trainer/global_step`) is left out.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "step": (
        "step", "global step", "steps", "iteration", "iter", "iter num", "update", "num updates", "total timesteps",
    ),
    "loss": ("loss", "loss step", "total loss", "lm loss", "losses", "nll loss", "loss epoch", "loss mean",
             "epoch loss", "loss train total", "ce loss", "loss total", "losses total", "losses total loss",
             "mean loss", "avg loss", "average loss", "loss avg", "batch loss", "running loss"),
    "grad_norm": (
        "grad norm", "gradient norm", "gradnorm", "global grad norm", "total grad norm", "grad 2 0 norm total", "gnorm",
        "global gradient norm",
    ),
    "lr": ("lr", "learning rate", "epoch learning rate"),
    "scale": ("loss scale", "grad scale", "scaler scale", "amp scale", "scale"),
    "time": ("runtime", "elapsed s", "elapsed seconds"),
    "seconds": ("elapsed time per iteration", "train step timing in s", "iter time", "timing s step"),
}  # fmt: skip
_NAMESPACES = frozenset(("trainer", "optim", "optimizer", "metrics", "scalars", "reduced", "log", "time"))
# Losses that are a part of an objective, or of an adversary: none of them is the loss of the training.
_PARTS = frozenset(
    ("policy", "value", "vf", "pg", "actor", "critic", "entropy", "kl", "aux", "balance", "z", "router",
     "d", "g", "gen", "disc", "generator", "discriminator", "adv", "adversarial", "q", "qf", "alpha", "commit")
)  # fmt: skip
_PLAYERS: Mapping[str, str] = {
    **dict.fromkeys(("d", "disc", "discriminator", "critic"), "discriminator"),
    **dict.fromkeys(("g", "gen", "generator"), "generator"),
}
_EPOCH = re.compile(r"(?:\w+/)?epoch(?:_?num)?", re.IGNORECASE)
_REWARD = re.compile(
    r"(?:^|/)(?:(?:mean|avg|average)_)?(?:rewards?|returns?|scores?|ep_rew_mean|ep_return|episode_reward)(?:_mean)?(?:/|$)"
)
_NO_SET = frozenset(("total", "mean", "average", "avg", "lm", "nll", "ce", "epoch", "at", "iteration"))
_BEHIND_A_LOSS = frozenset(("epoch", "step", "value", "total", "mean", "average", "avg"))
_OTHER = max(map(len, _NAMES.values()))  # place of a name that stands in none of the lists (`ctc_loss`): behind all
_EARLIER = 0.1  # a column that ends before a tenth of another's is not the curve of the run


@dataclass(frozen=True)
class Meaning:
    """What a column holds: `column` is one of ours or "", `phase` train, eval or test, `set` an evaluated set's name.

    `place`: of the name among those of its column, the plainest first. `explicit`: the name says its phase; `metric` is
    it without.
    """

    column: str
    phase: str
    set: str = ""
    place: int = 0
    _: KW_ONLY
    explicit: bool
    metric: str

    @property
    def rank(self) -> tuple[int, bool]:
        """How well the name fits, the least is best: of two like ones the one that says no phase."""
        return self.place, self.explicit

    @property
    def plain(self) -> bool:
        """Whether the name says plainly what it is."""
        return self.place < _OTHER


@dataclass(frozen=True)
class Plan:
    """Which column of the log becomes what. `evaluations` map names to phase (train, eval, test) and set.

    `players`: the losses of two adversaries by player, in a log that has no other one.
    """

    step: str | None
    steps: Mapping[str, str]
    evaluations: Mapping[str, tuple[str, str]]
    scalars: Mapping[str, tuple[str, str]]
    players: Mapping[str, str] = field(default_factory=dict)

    def named(self) -> dict[str, str]:
        """Our columns with the log's names for them, as they are shown to the user and kept in run.json."""
        found = {"step": self.step} if self.step else {}
        found |= dict(self.steps)
        found |= {f"loss of the {player}": name for player, name in self.players.items()}
        for name, (phase, held) in self.evaluations.items():
            ours = {"eval": "val_loss", "test": "test_loss", "train": "evaluated_train_loss"}[phase]
            found.setdefault(f"{ours} ({held})" if held else ours, name)
        return found


@lru_cache(maxsize=4096)
def meaning(name: str) -> Meaning:
    """What the log's column `name` holds, by its name alone."""
    words = [word for word in re.split(r"[^a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()) if word]
    if words[-3:] == ["cross", "entropy", "loss"]:  # no entropy of a policy
        words[-3:] = ["ce", "loss"]
    phase, rest = _phase(_without_namespace(words))
    rest = _without_namespace(rest)
    text, explicit = " ".join(rest), phase != ""
    means = partial(Meaning, explicit=explicit, metric=_without_phase(name) if explicit else name)
    if phase in ("eval", "test"):
        held = _evaluated_set(rest)
        return means("" if held is None else "loss", phase, held or "")
    for ours, theirs in _NAMES.items():
        if text in theirs:
            return means(ours, "train", place=theirs.index(text))
    if re.fullmatch(r"lr [a-z0-9 ]+|lr0|learning rate [a-z0-9 ]+", text):
        return means("lr", "train", place=_OTHER)
    if rest and rest[-1] in ("loss", "losses") and len(rest) <= 4 and not _PARTS & set(rest):
        return means("loss", "train", _evaluated_set(rest) or "", place=_OTHER)
    return means("", "train")


def plan(rows: Sequence[Row]) -> Plan:
    """Which column becomes what, by the names and, where several could be the training loss, by where they have values.

    A loss of training data that only ever stands beside a validation loss is an evaluation of that data, if the log has
    another training loss. Of the others the plainest name counts, unless it ends before a tenth of another one's run:
    then that one is the curve of the run. Without a plain name, a loss under a name of its own counts if there is one.
    """
    names = {name: meaning(name) for name in dict.fromkeys(name for row in rows for name in row)}
    best: dict[str, str] = {}
    for name, what in names.items():
        if what.column not in ("", "loss") and (what.column not in best or what.rank < names[best[what.column]].rank):
            best[what.column] = name
    evaluations = {n: (w.phase, w.set) for n, w in names.items() if w.column == "loss" and w.phase != "train"}
    losses = [n for n, w in names.items() if w.column == "loss" and w.phase == "train"]
    at = _steps_of((*losses, *evaluations), best.get("step"), rows)
    evaluated = {step for name in evaluations for step in at[name]}
    beside = [n for n in losses if names[n].explicit and at[n] and len(at[n] & evaluated) >= 0.9 * len(at[n])]
    others = [n for n in losses if n not in beside]
    training = _training_loss(others or beside, names, rows)
    if training is not None:
        best["loss"] = training
    elif len(policies := [name for name in names if _of_policy(name)]) == 1 and not evaluations:
        best["loss"] = policies[0]  # all that the log has of the updates of reinforcement learning
    evaluations |= {n: ("train", names[n].set) for n in beside if n != training}
    step = best.pop("step", None)
    players = {} if training is not None or evaluations else _players(names)
    used = {step, *best.values(), *evaluations, *players.values()}
    scalars = {n: (what.phase, what.metric) for n, what in names.items() if n not in used or _of_policy(n)}
    ordered = {ours: best[ours] for ours in _NAMES if ours in best}
    return Plan(step, ordered, evaluations, scalars, players)


def _of_policy(name: str) -> bool:
    """Whether a column holds the loss of a policy: `train/policy_gradient_loss`, `actor_loss`, `loss/pg`."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    return bool(words & {"policy", "actor", "pg"}) and bool(words & {"loss", "losses"})


def _players(names: Iterable[str]) -> dict[str, str]:
    """The losses of a discriminator and a generator, where a log has just one of each: `d_loss`, `loss_G`, `errD`."""
    found: dict[str, list[str]] = {}
    for name in names:
        text = re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()
        words = _without_namespace([word for word in re.split(r"[^a-z0-9]+", text) if word])
        words = [word for word in _phase(words)[1] if word not in _BEHIND_A_LOSS]
        rest = [word for word in words if word not in ("loss", "losses", "err")]
        if len(words) == 2 and len(rest) == 1 and rest[0] in _PLAYERS:
            found.setdefault(_PLAYERS[rest[0]], []).append(name)
    return {player: given[0] for player, given in found.items() if len(given) == 1} if len(found) == 2 else {}


def step_among(names: Iterable[str]) -> str | None:
    """The one of the names that numbers the steps."""
    found = [(what.rank, name) for name in names if (what := meaning(name)).column == "step"]
    return min(found)[1] if found else None


def phase_among(name: str) -> str:
    """The phase that the last word for one says: train, eval or test; empty without such a word."""
    words = re.split(r"[^a-z]+", name.lower())
    return next((_PHASES[word] for word in reversed(words) if word in _PHASES), "")


def is_epoch(name: str) -> bool:
    """Whether a column counts epochs."""
    return _EPOCH.fullmatch(name) is not None


def is_reward(name: str) -> bool:
    """Whether a column holds the rewards of reinforcement learning."""
    return _REWARD.search(name) is not None


def known(names: Iterable[str]) -> bool:
    """Whether one of the names is a column of ours, which must hold a number."""
    return any(meaning(name).column for name in names)


def _without_namespace(words: list[str]) -> list[str]:
    while len(words) > 1 and words[0] in _NAMESPACES:
        words = words[1:]
    return words


def _phase(words: list[str]) -> tuple[str, list[str]]:
    """The phase that the first or last word names ("" without one), and the other words."""
    trailing = 1 if len(words) > 2 and words[-1] in ("step", "epoch") else 0
    for place in (0, len(words) - 1 - trailing):
        if words and words[place] in _PHASES and len(words) > 1:
            return _PHASES[words[place]], words[:place] + words[place + 1 :]
    return "", words


def _without_phase(name: str) -> str:
    """The name as the log has it, without the word for the phase at its beginning or end."""
    word = "|".join(_PHASES)
    return re.sub(rf"^(?:{word})[^A-Za-z0-9]+|[^A-Za-z0-9]+(?:{word})$", "", name, count=1, flags=re.IGNORECASE)


def _evaluated_set(words: list[str]) -> str | None:
    """The name of the evaluated set in `eval_<set>_loss`, "" for the only one; None if this is no loss."""
    while len(words) > 1 and words[-1] in _BEHIND_A_LOSS:
        words = words[:-1]
    parts = {word for word in words if word in _PARTS and len(word) > 1}  # a set may be called by a letter
    if not words or words[-1] not in ("loss", "losses") or len(words) > 5 or parts:
        return None
    held = [word for word in words[:-1] if word not in _NO_SET]
    return " ".join(held)


def _steps_of(names: Iterable[str], step: str | None, rows: Sequence[Row]) -> dict[str, set[float]]:
    """The steps at which each column has a value; numbers of the rows where nothing numbers the steps."""
    at: dict[str, set[float]] = {name: set() for name in names}
    for index, row in enumerate(rows):
        number = row.get(step) if step else None
        for name in at.keys() & row.keys():
            if row[name] is not None:
                at[name].add(float(index) if number is None else number)
    return at


def _training_loss(candidates: list[str], names: Mapping[str, Meaning], rows: Sequence[Row]) -> str | None:
    plain = sorted((n for n in candidates if names[n].plain), key=lambda n: names[n].rank)
    if not plain:
        return candidates[0] if len(candidates) == 1 else None
    last = {name: max((i for i, row in enumerate(rows) if row.get(name) is not None), default=-1) for name in plain}
    furthest = max(last.values())
    return next(name for name in plain if last[name] >= _EARLIER * furthest)
