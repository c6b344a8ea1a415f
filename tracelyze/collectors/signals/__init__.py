"""The signals: one file per thing that is recorded. Add a file, add it here, and declare its columns in the schema."""

from __future__ import annotations

from tracelyze.collectors.signals.activations import Activations
from tracelyze.collectors.signals.autocast import Autocast
from tracelyze.collectors.signals.backward_flags import BackwardFlags
from tracelyze.collectors.signals.batches import Batches
from tracelyze.collectors.signals.clipping import Clipping
from tracelyze.collectors.signals.devices import Devices
from tracelyze.collectors.signals.evaluation import Evaluation
from tracelyze.collectors.signals.gradient_lifecycle import GradientLifecycle
from tracelyze.collectors.signals.gradient_norm import GradientNorm
from tracelyze.collectors.signals.learning_rate import LearningRate
from tracelyze.collectors.signals.live_graphs import LiveGraphs
from tracelyze.collectors.signals.loader import Loader
from tracelyze.collectors.signals.loader_processes import LoaderProcesses
from tracelyze.collectors.signals.loss import Loss
from tracelyze.collectors.signals.loss_inputs import LossInputs
from tracelyze.collectors.signals.loss_scale import LossScale
from tracelyze.collectors.signals.machine import Machine
from tracelyze.collectors.signals.memory import Memory
from tracelyze.collectors.signals.mode import Mode
from tracelyze.collectors.signals.parameters import Parameters
from tracelyze.collectors.signals.profiler_windows import ProfilerWindows
from tracelyze.collectors.signals.reached import Reached
from tracelyze.collectors.signals.reads import Reads
from tracelyze.collectors.signals.scalars import Scalars
from tracelyze.collectors.signals.scaler_use import ScalerUse
from tracelyze.collectors.signals.schedules import Schedules
from tracelyze.collectors.signals.script_lines import ScriptLines
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.signals.stacks import Stacks
from tracelyze.collectors.signals.state_loads import StateLoads
from tracelyze.collectors.signals.step_time import StepTime

# Order matters in one place: Mode and Autocast complete a call before Evaluation and others look at it.
SIGNALS: tuple[type[Signal], ...] = (
    Mode,
    Autocast,
    StepTime,
    Loss,
    LossInputs,
    LossScale,
    ScalerUse,
    BackwardFlags,
    GradientLifecycle,
    GradientNorm,
    Clipping,
    LearningRate,
    Schedules,
    Reached,
    Loader,
    Batches,
    Activations,
    Parameters,
    Memory,
    Machine,
    Devices,
    Stacks,
    LoaderProcesses,
    ScriptLines,
    Reads,
    LiveGraphs,
    Evaluation,
    Scalars,
    ProfilerWindows,
    StateLoads,
)
