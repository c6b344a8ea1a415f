"""Examples for programs whose loop is a trainer's own: the trainer's setting in place of a line that has no place.

A step that no line of the script makes is made by a framework: `trainer.train()` is the call of transformers and TRL,
`trainer.fit(...)` that of Lightning. An engine of Ignite, `trainer.run(...)`, makes the script's own step.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_CALL: Final = re.compile(r"(?:\w+ = )?(?P<trainer>[A-Za-z_][\w.]*)\.(?P<method>train|fit)\(")
_CLIP: Final = re.compile(
    r"^(?:norm = )?torch\.nn\.utils\.clip_grad_norm_\(model\.parameters\(\), (?:max_norm=)?(?P<norm>[\d.e+-]+)\)[^\n]*"
    r"(?:\noptimizer\.step\(\)$)?",
    re.MULTILINE,
)
_RATE: Final = re.compile(
    r"^optimizer = torch\.optim\.\w+\(model\.parameters\(\), lr=(?P<rate>[\d.e+-]+)\)$", re.MULTILINE
)
_BFLOAT16: Final = re.compile(r"^with torch\.autocast\([^)]*bfloat16\):(?:  #.*)?\n(?:[ \t]+.*\n?)+", re.MULTILINE)
_SCHEDULER: Final = re.compile(r"\Ascheduler\.step\(\)  # behind the loop over batches.*\Z", re.DOTALL)
_PER_BATCH: Final = re.compile(r"\Ascheduler\.step\(\)  # right behind optimizer\.step\(\).*\Z", re.DOTALL)
_INTERVAL: Final = (
    "# what configure_optimizers returns:\n"
    'return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "epoch"}}'
)
_LOOK: Final = re.compile(r"\Aloss\.backward\(\)\n(?P<look>print\(.*\))\Z")
_LOOK_BY: Final = {
    "fit": "def on_after_backward(self):  # of the LightningModule\n    {look}",
    "train": "from transformers import TrainerCallback  # before it trains\n\nclass Look(TrainerCallback):\n"
    "    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):\n        {look}\n\n"
    "{trainer}.add_callback(Look())",
}
_STOP: Final = re.compile(
    r"\Aif not torch\.isfinite\(loss\):.*\nloss\.backward\(\)\n.*error_if_nonfinite=True\n\)\Z", re.DOTALL
)
_STOP_BY: Final = {
    "fit": "# in training_step, above what it returns:\nif not torch.isfinite(loss):\n"
    '    torch.save(batch, "bad_batch.pt")\n    raise RuntimeError(f"the loss is {loss.item()}: see bad_batch.pt")\n\n'
    "# a method beside it, which raises at a gradient that is NaN or Inf, and changes no other:\n"
    "def on_before_optimizer_step(self, optimizer):\n"
    "    torch.nn.utils.clip_grad_norm_(self.parameters(), 1e30, error_if_nonfinite=True)",
    "train": "from transformers import TrainerCallback  # before it trains\n\nclass Stop(TrainerCallback):\n"
    "    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):\n"
    "        # raises at a gradient that is NaN or Inf, as that of such a loss, and changes no other:\n"
    "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e30, error_if_nonfinite=True)\n\n"
    "{trainer}.add_callback(Stop())",
}
_WORKERS: Final = re.compile(
    r"^.*= DataLoader\(.*num_workers=(?P<workers>\d+)(?P<stay>.*persistent_workers=True)?.*\)$", re.MULTILINE
)
STOP_EARLY: Final = """best, waited = float("inf"), 0  # before the loop

if val_loss < best:  # after each validation
    best, waited = val_loss, 0
    torch.save(model.state_dict(), "best.pt")
else:
    waited += 1
if waited == 5:
    break  # and go on with the weights in best.pt"""
_STOPPED_BY: Final = {
    "fit": "# what the Trainer is given, beside its callbacks, and without enable_checkpointing=False:\n"
    'callbacks=[EarlyStopping("val_loss", patience=5), ModelCheckpoint(monitor="val_loss")]',
    "train": "# what TrainingArguments is given, in place of what it has of these:\n"
    'eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="eval_loss"\n'
    "# and the Trainer, beside its callbacks:\ncallbacks=[EarlyStoppingCallback(early_stopping_patience=5)]",
}

_ABOVE: Final = re.compile(r"\b(?P<where>above|before) the (?:loop over epochs|epoch loop)\b")
_ENGINE: Final = re.compile(r"(?:\w+ = )?(?P<engine>[A-Za-z_][\w.]*)\.run\((?P<epochs>.*\bmax_epochs\s*=)?")
_STOPPED_BY_ENGINES: Final = """from ignite.handlers import EarlyStopping
# below what attaches the metrics, with your own name of the loss among them in place of "loss":
stops = EarlyStopping(patience=5, score_function=lambda engine: -engine.state.metrics["loss"], trainer={trainer})
{evaluator}.add_event_handler(Events.COMPLETED, stops)"""
HALVED: Final = """for i, (x, y) in enumerate(loader):  # with half the batch size
    (criterion(model(x), y) / 2).backward()
    if (i + 1) % 2 == 0:
        optimizer.step()
        optimizer.zero_grad()"""
_HALVED_BY: Final = {
    "fit": "trainer.accumulate_grad_batches = 2  # before fit; and half the batch size in the loader",
    "train": "args.per_device_train_batch_size //= 2  # args: the TrainingArguments, before the Trainer is made\n"
    "args.gradient_accumulation_steps *= 2",
}


def in_example(code: str, process: Process) -> str:
    """The example with the settings of the trainer that makes the steps; unchanged where the script makes them."""
    trainer, method = trainer_of(process)
    code = above_epochs(code, process)
    if not trainer:
        return _by_engines(process) or code if code == STOP_EARLY else code
    if code == STOP_EARLY:
        return _STOPPED_BY[method]
    if code == HALVED:
        return re.sub(r"\btrainer\b", trainer, _HALVED_BY[method])
    look = _LOOK.match(code)
    if look is not None:
        said = look["look"].replace("model.", "self.") if method == "fit" else look["look"]
        return _LOOK_BY[method].format(look=said, trainer=trainer)
    if _STOP.match(code):
        return _STOP_BY[method].replace("{trainer}", trainer)
    if method == "fit":
        code = _PER_BATCH.sub(_INTERVAL.replace('"epoch"', '"step"'), _SCHEDULER.sub(_INTERVAL, code))
        code = _CLIP.sub(rf"{trainer}.gradient_clip_val = \g<norm>  # before fit", code)
        return _BFLOAT16.sub('trainer = Trainer(precision="bf16-mixed")  # beside what it is given today', code)
    before = "before it trains"
    code = _CLIP.sub(rf"{trainer}.args.max_grad_norm = \g<norm>  # {before}", code)
    code = _RATE.sub(rf"{trainer}.args.learning_rate = \g<rate>  # {before}", code)
    code = _WORKERS.sub(lambda made: _workers(trainer, made, before), code)
    return _BFLOAT16.sub("TrainingArguments(output_dir, bf16=True)  # beside what it is given today", code)


def above_epochs(text: str, process: Process) -> str:
    """Words or an example with the call that goes through the epochs, where no loop of the script does."""
    if not _ABOVE.search(text) or process.locations("epochs"):
        return text
    trainer, method = trainer_of(process)
    runs = [match for one in process.locations("loader") if (match := _ENGINE.match(one.source)) and match["epochs"]]
    engines = {match["engine"] for match in runs}
    call = f"{trainer}.{method}(...)" if trainer else f"{engines.pop()}.run(...)" if len(engines) == 1 else ""
    return _ABOVE.sub(rf"\g<where> {call}", text) if call else text


def _by_engines(process: Process) -> str:
    """How engines of Ignite stop early; empty where none runs the epochs."""
    runs = [match for one in process.locations("loader") if (match := _ENGINE.match(one.source))]
    trainers = {match["engine"] for match in runs if match["epochs"]}
    others = {match["engine"] for match in runs} - trainers
    if len(trainers) != 1:
        return ""
    evaluator = others.pop() if len(others) == 1 else "evaluator"
    return _STOPPED_BY_ENGINES.format(trainer=trainers.pop(), evaluator=evaluator)


def _workers(trainer: str, made: re.Match[str], before: str) -> str:
    """What the trainer is told of workers, where an example makes a loader with them."""
    line = f"{trainer}.args.dataloader_num_workers = {made['workers']}  # {before}"
    return f"{line}\n{trainer}.args.dataloader_persistent_workers = True" if made["stay"] else line


def trainer_of(process: Process) -> tuple[str, str]:
    """Name and method of the trainer whose call makes the steps, or before the first one the backwards; empty where
    lines of the script make them."""
    lines = {line.source for line in process.locations("step") or process.locations("backward")}
    match = _CALL.match(lines.pop()) if len(lines) == 1 else None
    return (match["trainer"], match["method"]) if match else ("", "")
