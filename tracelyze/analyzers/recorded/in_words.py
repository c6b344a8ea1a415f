"""What the columns of a recording hold, in words for people who have never seen one: nouns, to follow "not seen"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.table import Table

_CLEARED: Final = "gradients from one step to the next"
_IDS: Final = "targets that are token ids"
_PASSES: Final = "evaluation passes"
_TENSORS: Final = "gradients of the optimizer's tensors"
_TRAINING: Final = "training forwards"
_TABLES: Final = {
    "activations": "outputs of modules",
    "batches": "contents of batches",
    "checkpoints": "files of weights that are saved or loaded",
    "collectives": "collective operations",
    "copies": "weights of copies of the model",
    "compilations": "functions that torch.compile compiles",
    "counted_targets": "targets of the losses of a step",
    "evals": _PASSES,
    "events": "exceptions and warnings of the program",
    "fetches": "random numbers that DataLoader workers draw",
    "group_rates": "learning rates of parameter groups",
    "initializations": "weights that are initialised",
    "inputs_in_use": "inputs of the model, read twice in a step",
    "loads": "weights that are loaded",
    "loaders": "DataLoaders",
    "loss_calls": "calls of loss functions",
    "loss_graphs": "operations behind losses",
    "mixings": "trial calls of the model",
    "models": "models",
    "new_rows": "rows added to embeddings",
    "optimizers": "optimizers",
    "parameters": "updates of single tensors",
    "put_in": "weights that the model is evaluated with",
    "reach": "gradients of the model's tensors",
    "references": "calls of a second model",
    "replays": "trial calls of the model",
    "scalars": "values that the program logs",
    "schedules": "learning rate schedulers",
    "sites": "lines of the program",
    "timesteps": "timesteps of a diffusion model",
    "updates": "updates of Adam, or of an optimizer like it",
    "unset": "normalisations in eval mode",
}
_COLUMNS: Final = {  # where a row of the table need not hold them
    "activations.experts": "routers of a mixture of experts",
    "activations.outputs": "linear layers in a row",
    "activations.zeros": "outputs of ReLUs",
    "evals.loss": "validation losses",
    "evals.statistics": "running statistics of BatchNorm",
    "loss_calls.begin_twice": _IDS,
    "loss_calls.column_same": "inputs that a target could be part of",
    "loss_calls.end_counts": _IDS,
    "loss_calls.ids_ahead": _IDS,
    "loss_calls.ids_equal": _IDS,
    "loss_calls.ids_next": _IDS,
    "loss_calls.ignored": "targets that are classes",
    "loss_calls.pad_same": "padding in the targets",
    "loss_calls.pad_share": "padding in the targets",
    "loss_calls.parts": "rows that hold several samples",
    "loss_calls.prefix_share": "prompts before the answers",
    "loss_calls.sees_later": "attention of one position to others",
    "loss_calls.target_lowest": "one label per sample",
    "loss_calls.target_trained": "targets that depend on weights",
    "loss_calls.target_varies": "predictions of single samples",
    "loss_calls.varies": "predictions of single samples",
    "loss_graphs.masked_rows": "attention with a mask",
    "loss_graphs.one_id_rows": "ids that attention may look at",
    "loss_graphs.products_work": "matrix products under autocast",
    "loss_graphs.products": "attention that the script writes out",
    "loss_graphs.weights_zero": "weights of a policy's loss",
    "models.sensitive": "modules like BatchNorm and Dropout",
    "parameters.grad_norm": "gradients of single tensors",
    "parameters.grad_usual": "gradients of single tensors",
    "parameters.weight_norm": "weights of single tensors",
    "samples.innermost": "lines that the program was seen in",
    "steps.anomaly_mode": "backward passes",
    "steps.autocast": _TRAINING,
    "steps.backward_seconds": "times of backward passes",
    "steps.backwards": "backward passes",
    "steps.batch_size": "batch sizes",
    "steps.clip_max_norm": "gradient clipping",
    "steps.clipped_scaled": "gradient clipping",
    "steps.clips": "gradient clipping",
    "steps.device_allocated": "device memory",
    "steps.device_peak": "device memory",
    "steps.device_reserved": "device memory",
    "steps.device_retries": "device memory",
    "steps.grad_norm": "gradient norms",
    "steps.grads_carried": _CLEARED,
    "steps.grads_cleared": _CLEARED,
    "steps.grads_discarded": _CLEARED,
    "steps.grads_none": _TENSORS,
    "steps.grads_nonfinite": "gradient norms",
    "steps.graph_retained": "backward passes",
    "steps.host_rss": "host memory",
    "steps.live_graphs": "autograd graphs",
    "steps.loader": "DataLoaders",
    "steps.loader_batches": "DataLoaders",
    "steps.loader_first": "waiting times for data",
    "steps.loader_wait": "waiting times for data",
    "steps.loss": "training losses",
    "steps.loss_divisor": "divisors of losses",
    "steps.losses_scaled": "use of a GradScaler",
    "steps.lr": "learning rates",
    "steps.microbatches": "micro-batches",
    "steps.model_in_train": _TRAINING,
    "steps.modules_in_train": _TRAINING,
    "steps.modules_sensitive": _TRAINING,
    "steps.parameters": _TENSORS,
    "steps.scale": "use of a GradScaler",
    "steps.scaler_use": "use of a GradScaler",
    "steps.seconds": "times of steps",
    "steps.skipped": "use of a GradScaler",
    "steps.time": "times of steps",
}


def noun(column: str) -> str | None:
    """What a column ("steps.grad_norm") of the catalogue is about: the thing, not the column. None where unnamed."""
    return _COLUMNS.get(column) or _TABLES.get(column.partition(".")[0])


def said(column: str, tables: Mapping[str, Table]) -> str:
    """What a column is about; of one that only rules from outside need, its meaning."""
    table, name = column.split(".")
    return noun(column) or tables[table].spec.column(name).meaning
