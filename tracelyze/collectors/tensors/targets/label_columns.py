"""Targets beside the numbers that a model was given: is one of its inputs the target itself?

The first layer that is given nothing trainable has saved its input. A table whose label column was left in has one
column that is the target, scaled and shifted at most, or one for each class.
"""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.tensors.graphs import Graph
from tracelyze.collectors.tensors.safe_computing import is_plain
from tracelyze.collectors.tensors.saved_values import saved

# By operation: which of its inputs is the data, and the name under which it is saved.
FIRST_LAYERS = {
    "Addmm": (1, "mat1"),
    "Mm": (0, "self"),
    "Convolution": (0, "input"),
    "NativeBatchNorm": (0, "input"),
    "NativeLayerNorm": (0, "input"),
    "MkldnnRnnLayer": (0, "input"),
}
MAX_LAYERS, MAX_ROWS, MAX_COLUMNS, MAX_CLASSES = 4, 256, 2048, 16
FEWEST = 16  # samples
COLUMNS = ("column_rows", "columns", "column", "column_same", "column_other")


def columns(torch: Any, given: Any, target: Any) -> dict[str, Any]:
    """Columns of a row of loss_calls, as tensors without dimensions; empty where a sample has no target of its own."""
    return behind(torch, given.grad_fn, given, target)


def behind(torch: Any, root: Any, given: Any, target: Any) -> dict[str, Any]:
    """The columns for inputs that lie behind a node of the graph."""
    samples = int(target.shape[0]) if target.dim() else 0
    if samples < FEWEST or target.numel() != samples or given.shape[0] != samples or not is_plain(torch, target):
        return {}
    graph = Graph(root)
    if not graph.whole:
        return {}
    tables = _tables(torch, graph, samples, target.device)
    if not tables:
        return {}
    classes = int(given.shape[1]) if not target.is_floating_point() and given.dim() > 1 else 1
    return _compared(torch, tables[0][:MAX_ROWS], target.detach().reshape(-1)[:MAX_ROWS], classes)


def _tables(torch: Any, graph: Graph, samples: int, device: Any) -> list[Any]:
    """What first layers were given, shape [samples, numbers], the widest first."""
    found: list[Any] = []
    for node in graph.of_kind(*FIRST_LAYERS):
        place, name = FIRST_LAYERS[graph.nodes[node]]
        if node.next_functions[place][0] is not None:
            continue
        data = saved(node, name)
        if data is None or not is_plain(torch, data) or not data.is_floating_point() or data.device != device:
            continue
        data = data.detach()
        if data.dim() == 3 and data.shape[0] != samples and data.shape[1] == samples:
            data = data.transpose(0, 1)  # the dimension of time comes before that of the batch
        elif data.dim() == 2 and data.shape[0] != samples and data.shape[0] % samples == 0:
            times = data.shape[0] // samples
            shape = (samples, times, -1)
            data = data.reshape(times, samples, -1).transpose(0, 1) if _recurrent(graph) else data.reshape(shape)
        if len(found) < MAX_LAYERS and data.shape[0] == samples and 1 < data.numel() // samples <= MAX_COLUMNS:
            found.append(data.reshape(samples, -1))
    return sorted(found, key=lambda one: -int(one.shape[1]))


def _recurrent(graph: Graph) -> bool:
    """Whether a recurrent layer is unrolled in the graph: torch gives it positions first."""
    return bool(graph.of_kind("UnsafeSplit", "Unbind"))


def _compared(torch: Any, table: Any, target: Any, classes: int) -> dict[str, Any]:
    """The correlation of the target with the column that is most like it, and with the next one. Of several classes,
    with the column for their number, or of the least known class with its own column."""
    table, wanted = _standard(table.double()), _standard(target.double().unsqueeze(1))
    like = (wanted.T @ table).abs()[0] / len(table)
    same, column = like.max(0)
    other = torch.where(torch.arange(len(like), device=like.device) == column, torch.zeros_like(like), like).amax()
    if 2 < classes <= MAX_CLASSES:
        each = (target.unsqueeze(1) == torch.arange(classes, device=target.device)).double()
        there = each.any(0) & ~each.all(0)
        known = ((_standard(each).T @ table).abs() / len(table)).amax(1)
        least = torch.where(there, known, torch.ones_like(known)).amin() * there.any()
        same = torch.maximum(same, least)
    numbers = torch.full_like(same, float(table.shape[1]))
    rows = torch.full_like(same, float(len(table))) * (wanted.abs().amax() > 0)
    return {
        "column_rows": rows,
        "columns": numbers,
        "column": column.double(),
        "column_same": same,
        "column_other": other,
    }


def _standard(values: Any) -> Any:
    """Columns with mean 0 and deviation 1; zeros where all values are the same."""
    values = values - values.mean(0)
    deviation = values.square().mean(0).sqrt()
    return values / deviation.clamp(min=1e-300) * (deviation > 0)
