"""The signals: one file per thing that is recorded. Add a file, add it here, and declare its columns in the schema."""

from __future__ import annotations

import importlib
from typing import Any, Final

from tracelyze.collectors.signals.signal import Signal

# Order matters in one place: Mode and Autocast complete a call before Evaluation and others see it.
CLASSES: Final = (
    "model.mode.Mode",
    "precision.autocast.Autocast",
    "machine.step_time.StepTime",
    "loss.loss.Loss",
    "loss.nonfinite_loss.NonfiniteLoss",
    "loss.loss_inputs.LossInputs",
    "loss.written_losses.WrittenLosses",
    "loss.given_labels.GivenLabels",
    "loss.loss_graphs.LossGraphs",
    "loss.acting.Acting",
    "loss.references.References",
    "precision.loss_scale.LossScale",
    "precision.scaler_use.ScalerUse",
    "gradients.backward_flags.BackwardFlags",
    "gradients.gradient_lifecycle.GradientLifecycle",
    "gradients.gradient_norm.GradientNorm",
    "gradients.clipping.Clipping",
    "gradients.microbatches.MicroBatches",
    "gradients.counted_targets.CountedTargets",
    "optimizer.learning_rate.LearningRate",
    "optimizer.schedules.Schedules",
    "optimizer.group_rates.GroupRates",
    "optimizer.updates.Updates",
    "gradients.reached.Reached",
    "data.loader.Loader",
    "data.batches.Batches",
    "data.inputs_in_use.InputsInUse",
    "data.fetching.Fetching",
    "data.loading_lines.LoadingLines",
    "data.seeding.Seeding",
    "model.activations.Activations",
    "model.parameters.Parameters",
    "model.new_rows.NewRows",
    "model.timesteps.Timesteps",
    "model.initializations.Initializations",
    "machine.memory.Memory",
    "machine.machine.Machine",
    "machine.devices.Devices",
    "machine.stacks.Stacks",
    "machine.collectives.Collectives",
    "data.loader_processes.LoaderProcesses",
    "machine.script_lines.ScriptLines",
    "machine.module_hooks.ModuleHooks",
    "machine.reads.Reads",
    "gradients.live_graphs.LiveGraphs",
    "evaluation.evaluation.Evaluation",
    "machine.evaluated_reads.EvaluatedReads",
    "loss.scalars.Scalars",
    "loss.reported_losses.ReportedLosses",
    "machine.profiler_windows.ProfilerWindows",
    "machine.compilations.Compilations",
    "checkpoints.state_loads.StateLoads",
    "checkpoints.checkpoints.Checkpoints",
    "model.running_state.RunningState",
    "model.followers.copies.Copies",
    "model.followers.put_in.PutIn",
    "model.calls_past_modules.CallsPastModules",
    "probing.probe.Probe",
)


def _signal(path: str) -> type[Signal]:
    module, _, name = path.rpartition(".")
    found: Any = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    kind: type[Signal] = found
    return kind


SIGNALS: Final[tuple[type[Signal], ...]] = tuple(_signal(path) for path in CLASSES)
