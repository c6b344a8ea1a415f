"""Whether tensors belong to batch normalisations alone, which fine-tuning often leaves as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed.gradients.trainable import tensor_names

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

KINDS: Final = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")
LEFT_OUT: Final = (
    "All of them scale and shift what a batch normalisation gives. Fine-tuning often leaves these as they are, as "
    "Lightning's BaseFinetuning does with train_bn=False: it unfreezes them all the same, and gives the optimizer the "
    "other tensors only."
)


def alone(process: Process, names: str, count: int) -> bool:
    """Whether all `count` tensors are named, and every module of these names is a batch normalisation."""
    known = tensor_names.each(names)
    if len(known) != count or any(map(tensor_names.is_nameless, known)):
        return False
    kinds: dict[str, set[str]] = {name.rpartition(".")[0]: set() for name in known}
    for row in process.tables["modules"].records():
        if row["module"] in kinds:
            kinds[row["module"]].add(row["kind"])
    return all(found and found <= set(KINDS) for found in kinds.values())
