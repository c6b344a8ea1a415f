"""What has rare classes count: a sampler that draws them, weights of the loss, or another measure of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.rules.data.class_imbalance import class_shares, one_answer, weighed_down
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.datasets import held_generators
from tracelyze.analyzers.script.editing import loader_arguments
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

_BY_TRAINER: Final = """
class BalancedTrainer(Trainer):  # in place of Trainer
    def _get_train_sampler(self, *args):
        return sampler"""
_DRAWN: Final = "index = torch.multinomial(weights, batch_size, replacement=True)  # the samples of a batch"
_WEIGH: Final = ". Unless you already do, weight the classes in the loss, or sample {} more often."
_JUDGE: Final = "Judge the model by precision and recall, or by the area under the curve"


def remedy(process: Process, most: str, share: float, counts: Counter[str], limits: Limits) -> Remedy:
    """For targets of which `most` makes up `share`. `counts`: how many of each class were seen; of a single one where
    only its share is known, from the loss."""
    optimization, least = process.longest, counts.most_common()[-1][0]
    exact = least != most
    drawn = one_answer.drawn(process, most, share, limits) if exact else None
    down = weighed_down.find(process, most, counts) if exact else None
    why = f"{drawn.said if drawn else ''}{down.said if down else ''}"
    line = process.location("loss") or optimization.loss_location
    made = recorded_text.matching(process, weighed_down.MADE)  # lines that give the loss its weights
    weighed = bool(made) or (line is not None and "weight" in line.source)
    weights = made[0] if len(made) == 1 else line
    usual = weights if weighed else class_shares.sampled_at(optimization, line) if exact else line
    if drawn:
        code = down.code if down else _sampled(process, optimization.loader)
        return Remedy(one_answer.FIX, code, drawn.place or usual, down.diff if down else None, why)
    if down:
        return Remedy(weighed_down.FIX, down.code, down.place or usual, down.diff, why)
    if weighed:
        judged = class_shares.judged(least if exact else None)
        return Remedy(_JUDGE + class_shares.already_weighed(weights), judged, usual)
    two = exact and len(counts) == len((most, least))
    code = _sampled(process, optimization.loader) if exact else class_shares.weighed(process)
    fix = _JUDGE + _WEIGH.format(f"class {least}" if two else "the rare ones")
    return Remedy(fix, code, usual)


def _sampled(process: Process, loader: Mapping[str, Any]) -> str:
    """Rare classes drawn more often: by the call that makes the loader, by the method of a trainer that makes it, or by
    the indices of a loop that draws its batches itself."""
    weights = class_shares.SAMPLED
    if not loader:
        return f"{class_shares.DRAWN_BY}{_DRAWN}"
    if held_generators.by_trainer(process, loader):
        return f"{weights}{_BY_TRAINER}"
    return f"{weights}{loader_arguments.example(process, loader, {'sampler': 'sampler'}, dropped='shuffle')}"
