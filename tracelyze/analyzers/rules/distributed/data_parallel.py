"""data-parallel: nn.DataParallel instead of one process per device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped
from tracelyze.analyzers.script.editing import trainer_examples
from tracelyze.diagnosis import Evidence, Finding

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

BY_TRAINER = (
    "Start the script with torchrun, one process per device: the Trainer then wraps the model in "
    "DistributedDataParallel and divides the data by itself. Or show it one device (CUDA_VISIBLE_DEVICES=0)."
)


def check(process: Process, _limits: Limits) -> Outcome:
    """A model of class DataParallel was called."""
    models = list(process.models.records())
    found = [row["model"] for row in models if "DataParallel" in (row["name"], row.get("parallel"))]
    if not found:
        distributed = any(str(row["name"]).startswith("DistributedDataParallel") for row in models)
        if distributed:
            return Passed("the model is wrapped in DistributedDataParallel")
        return Skipped("no model is wrapped to run on several devices", "not-applicable")
    _, by_trainer = trainer_examples.trainer_of(process)
    made = [row for row in process.tables["modules"].records() if row["model"] in found and not row["module"]]
    return [
        Finding(
            rule=RULE.id,
            severity="info",
            confidence="certain",
            title="The model runs under nn.DataParallel, which "
            + ("gains nothing on a CPU" if process.device == "cpu" else "is slow"),
            summary=(
                "nn.DataParallel drives all devices from one Python process and copies the model to each of them at "
                "every forward. One process per device (DistributedDataParallel) is faster even with two devices, and "
                "the only way to use several machines. On one device, or on a CPU, the wrapper gains nothing, and it "
                "still prefixes weight names with 'module.'."
            ),
            fix=BY_TRAINER
            if by_trainer == "train"
            else "Take the wrapper off, or start several processes with torchrun and wrap the model in "
            "DistributedDataParallel."
            if process.device == "cpu"
            else "Start one process per device with torchrun, wrap the model in DistributedDataParallel, and "
            "give each rank its own part of the data with a DistributedSampler.",
            fix_code="torchrun --nproc-per-node 4 train.py"
            if by_trainer == "train"
            else "# torchrun --nproc-per-node 4 train.py\ntorch.distributed.init_process_group()\n"
            'device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else "cpu"\n'
            "model = DistributedDataParallel(model.to(device))\n"
            "loader = DataLoader(dataset, batch_size=32, sampler=DistributedSampler(dataset))",
            evidence=[Evidence("wrapper", "DataParallel")],
            location=process.site(made[0]["made_at"] if made else None) or process.location("backward"),
            false_alarm="A short experiment for which a second process is not worth the effort.",
        )
    ]


RULE = Rule(
    id="data-parallel",
    family="distributed",
    severity="info",
    title="nn.DataParallel in use",
    about="nn.DataParallel shares one Python thread between all devices and copies the model at every forward.",
    check=check,
    verify="Compare samples per second before and after with `tracelyze compare`.",
    excluded=("DistributedDataParallel: the class of the wrapper was recorded.",),
    needs=(("models.name",),),
    not_when="DistributedDataParallel.",
    references=("https://docs.pytorch.org/docs/stable/notes/cuda.html",),
)
