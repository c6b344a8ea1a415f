"""What an expert says about every training in this folder: the labels that the rules are judged by.

A training is healthy (no roots) or has one or two faults. `roots` names, fault by fault, the rule that states the
root cause; where the field itself would argue about the name, alternatives are separated by `|`: any is right, the
first is the name that says most. `consequences` may be found as well, explained by a root; `extras` are honest
findings that may or may not be made. Findings of severity info are never counted as alarms.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent

BLOW_UP: Final = (
    "clipping-always-active",
    "constant-output",
    "dead-relu",
    "exploding-gradients",
    "fp16-overflow",
    "gradient-spikes",
    "learning-rate-too-high",
    "loss-divergence",
    "loss-nonfinite",
    "loss-plateau",
    "loss-spikes",
    "nonfinite-activations",
    "nonfinite-gradients",
    "overfitting",
    "update-ratio",
    "validation-fluctuation",
    "validation-nonfinite",
    "zero-gradients",
)
POISONED: Final = (
    "loss-nonfinite",
    "nonfinite-activations",
    "nonfinite-gradients",
    "validation-nonfinite",
)
STUCK: Final = (
    "constant-output",
    "dead-relu",
    "frozen-parameters",
    "loss-plateau",
    "step-without-backward",
    "update-ratio",
    "updates-not-applied",
    "vanishing-gradients",
    "zero-gradients",
)
NOISY_VALIDATION: Final = ("batchnorm-in-validation", "overfitting", "validation-fluctuation")
LEAKING: Final = ("host-memory-leak", "memory-leak", "retain-graph", "throughput-decay")


@dataclass(frozen=True)
class Training:
    """One labelled run: `path` is relative to this folder, `lines` are the source lines that may be pointed at.

    `collect`: options of `tracelyze collect` that it is recorded with.
    `seed`: by how much the script's seeds are raised (benchmarks/reseeded.py); 0 runs it as it is.
    """

    path: str
    args: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    consequences: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    exit_code: int = 0
    fast: bool = False
    seed: int = 0
    collect: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Stem of the script, with the fault where one is switched on: `gan_toy[wrong-optimizer]`."""
        stem = Path(self.path).stem
        chosen = f"{stem}[{self.args[-1]}]" if self.args else stem
        return f"{chosen}+{self.seed}" if self.seed else chosen

    @property
    def healthy(self) -> bool:
        """Nothing is wrong with this training."""
        return not self.roots

    @property
    def script(self) -> Path:
        """Absolute path of the script."""
        return FOLDER / self.path

    def allowed(self) -> frozenset[str]:
        """Rules that may fire on this run without being a false alarm."""
        return frozenset({rule for root in self.roots for rule in root.split("|")} | {*self.consequences, *self.extras})


def pair(
    stem: str,
    fault: str,
    *roots: str,
    consequences: tuple[str, ...] = (),
    extras: tuple[str, ...] = (),
    lines: tuple[str, ...] = (),
    exit_code: int = 0,
    fast: bool = False,
    collect: tuple[str, ...] = (),
) -> Training:
    """A fault that is one flag away from a healthy script of `pairs/`."""
    path, args = f"pairs/{stem}.py", ("--fault", fault)
    return Training(path, args, roots, consequences, extras, lines, exit_code, fast, collect=collect)


def faulty(
    stem: str,
    *roots: str,
    consequences: tuple[str, ...] = (),
    extras: tuple[str, ...] = (),
    lines: tuple[str, ...] = (),
    exit_code: int = 0,
    fast: bool = False,
) -> Training:
    """A script of `faulty/`."""
    return Training(f"faulty/{stem}.py", (), roots, consequences, extras, lines, exit_code, fast)


MISFED: Final = ("constant-output", "gradient-spikes", "loss-divergence", "loss-plateau", "loss-spikes")
FROM_BUFFER: Final = ("torch.from_numpy(one)",)
STEP: Final = ("loss.backward()", "optimizer.step()")
FREEZE: Final = "parameter.requires_grad_(False)"
LEAK_EITHER: Final = "memory-leak|host-memory-leak"
DIVERGES: Final = "learning-rate-too-high|exploding-gradients|loss-divergence|loss-nonfinite|nonfinite-gradients"

ZERO_GRAD: Final = (
    pair("ripeness_meter", "never-cleared", "missing-zero-grad", consequences=BLOW_UP),
    pair("ripeness_meter", "sharpness-never-cleared", "missing-zero-grad", consequences=BLOW_UP),
    pair("spirals_mlp", "missing-zero-grad", "missing-zero-grad", consequences=BLOW_UP, lines=STEP, fast=True),
    pair(
        "image_trainer",
        "missing-zero-grad",
        "missing-zero-grad",
        consequences=BLOW_UP,
        lines=("loss.backward()", "self.optimizer.step()"),
    ),
    pair("accumulate_modulo", "never-cleared", "missing-zero-grad", consequences=BLOW_UP, lines=STEP),
    pair("momentum_regression", "missing-zero-grad", "missing-zero-grad", consequences=BLOW_UP, lines=STEP, fast=True),
    pair(
        "gan_toy",
        "wrong-optimizer",
        "partial-zero-grad",
        consequences=BLOW_UP,
        lines=("loss_g.backward()", "optimizer_g.step()"),
        fast=True,
    ),
    *(
        pair(
            "gan_toy",
            fault,
            "partial-zero-grad",
            consequences=BLOW_UP,
            lines=("loss_d.backward()", "loss_g.backward()", "optimizer_d.step()", "optimizer_g.step()"),
            fast=True,
        )
        for fault in ("clear-after-step", "attached-samples")
    ),
    faulty("zero_grad_once", "missing-zero-grad", consequences=BLOW_UP, lines=STEP),
    faulty("translation_no_clearing", "missing-zero-grad", consequences=BLOW_UP, lines=STEP),
    faulty("zero_grad_wrong_copy", "missing-zero-grad", consequences=BLOW_UP, lines=STEP),
    faulty(
        "lbfgs_closure_without_clearing",
        "missing-zero-grad",
        consequences=BLOW_UP,
        lines=("loss.backward()", "loss = optimizer.step(closure)"),
    ),
    faulty(
        "manual_sgd_never_zeroed",
        "missing-zero-grad",
        consequences=BLOW_UP,
        lines=("loss.backward()", "weights -= learning_rate * weights.grad"),
    ),
    faulty(
        "two_optimizers_one_cleared",
        "partial-zero-grad",
        consequences=BLOW_UP,
        lines=("net_optimizer.zero_grad()",),
    ),
    faulty(
        "one_cleared_twice",
        "partial-zero-grad",
        consequences=BLOW_UP,
        lines=("enc_opt.zero_grad(set_to_none=True)",),
        fast=True,
    ),
    faulty(
        "only_backbone_cleared",
        "partial-zero-grad",
        consequences=BLOW_UP,
        lines=("sum(parts.values()).backward()", "optimizer.step()", "model.trunk.zero_grad()"),
        fast=True,
    ),
    pair(
        "spirals_mlp",
        "zero-grad-after-backward",
        "zero-grad-after-backward",
        consequences=STUCK,
        lines=("optimizer.zero_grad()", *STEP),
        fast=True,
    ),
    faulty(
        "cleared_before_step_trainer",
        "zero-grad-after-backward",
        consequences=STUCK,
        lines=("self.optimizer.zero_grad(set_to_none=False)", "loss.backward()", "self.optimizer.step()"),
    ),
    pair(
        "accumulate_modulo",
        "cleared-every-microbatch",
        "discarded-microbatches",
        lines=("optimizer.zero_grad()", *STEP),
    ),
    faulty("steps_twice", "step-without-backward", lines=("optimizer.step()",), fast=True),
    pair("accumulate_modulo", "not-divided", "unscaled-accumulation", consequences=("update-ratio",), lines=STEP),
    pair("accumulate_modulo", "divided-twice", "unscaled-accumulation", lines=("(loss / accumulate).backward()",)),
    faulty("window_across_epochs", "irregular-accumulation", lines=("if (i + 1) % accumulate == 0:",), fast=True),
    pair(
        "accumulate_modulo",
        "clip-every-microbatch",
        "clip-per-microbatch",
        lines=("nn.utils.clip_grad_norm_(model.parameters(), 0.5)",),
    ),
)

NO_GRADIENT: Final = (
    pair("spirals_mlp", "detached-loss", "zero-gradients", consequences=STUCK, fast=True),
    pair(
        "distillation",
        "teacher-held",
        "teacher-trains",
        consequences=("checkpoint-mismatch",),
        extras=("train-in-eval-mode",),
    ),
    pair(
        "reef_sounds",
        "teacher-held",
        "teacher-trains",
        lines=("optimizer = torch.optim.Adam((p for p in lessons.parameters() if p.requires_grad), lr=3e-3)",),
    ),
    pair("echo_student", "teacher-held", "teacher-trains", extras=("train-in-eval-mode",), fast=True),
    pair("echo_student", "soft-teacher-held", "teacher-trains", extras=("train-in-eval-mode",)),
    pair(
        "distillation",
        "teacher-thawed",
        "teacher-trains",
        consequences=("checkpoint-mismatch",),
        extras=("train-in-eval-mode",),
        lines=("both.requires_grad_(True)",),
        fast=True,
    ),
    pair("distillation", "student-loss-item", "zero-gradients", consequences=STUCK),
    pair("finetune_backbone", "no-grad-forward", "zero-gradients", consequences=STUCK),
    pair("finetune_backbone", "frozen-head", "zero-gradients|frozen-parameters", consequences=STUCK),
    faulty("dead_output_relu", "zero-gradients|dead-relu", consequences=STUCK),
    faulty(
        "deep_sigmoid_stack",
        "vanishing-gradients",
        consequences=STUCK,
        lines=("layers = [nn.Linear(inputs, width), nn.Sigmoid()]",),
        fast=True,
    ),
    faulty("one_shard_mislabelled", "loss-spikes", extras=("gradient-spikes",), lines=("values, label = read(",)),
    faulty("biases_too_low", "dead-relu", consequences=STUCK, lines=("nn.init.constant_(layer.bias, -3.0)",)),
    faulty(
        "weights_initialised_below_zero",
        "dead-relu",
        consequences=STUCK,
        lines=("self.relu = nn.ReLU()", "nn.init.uniform_(self.into.weight"),
        fast=True,
    ),
    faulty("loss_on_detached_output", "zero-gradients", consequences=STUCK),
    faulty(
        "losses_made_anew",
        "zero-gradients",
        consequences=STUCK,
        lines=("torch.tensor(terms, requires_grad",),
        fast=True,
    ),
    faulty(
        "optimizer_made_every_epoch",
        "loss-spikes",
        consequences=("gradient-spikes",),
        lines=("optimizer = torch.optim.Adam(model.parameters(), lr=rate)",),
    ),
    faulty(
        "optimizer_updates_copies",
        "updates-not-applied",
        consequences=STUCK,
        lines=("p = p - group",),
        fast=True,
    ),
    pair(
        "momentum_regression",
        "no-step",
        "updates-not-applied",
        consequences=STUCK,
        lines=("optimizer.step()",),
        fast=True,
    ),
    faulty(
        "layers_in_a_list",
        "frozen-parameters",
        consequences=STUCK,
        lines=("self.hidden = [nn.Linear(2, width), nn.Linear(width, width)]",),
        fast=True,
    ),
    pair(
        "frozen_backbone",
        "on-module",
        "frozen-parameters",
        lines=("backbone.requires_grad = False",),
        fast=True,
    ),
    pair("frozen_backbone", "misspelt", "frozen-parameters", lines=("parameter.require_grad = False",), fast=True),
    pair(
        "plankton_adapter",
        "head-frozen",
        "frozen-parameters",
        consequences=("loss-plateau",),
        lines=("parameter.requires_grad_(trains)",),
    ),
    pair("plankton_adapter", "head-loaded"),
    pair("plankton_adapter", "features"),
    pair(
        "counted_parameters",
        "used-up",
        "frozen-parameters",
        consequences=STUCK,
        lines=('return torch.optim.AdamW([{"params": slow', "slow = "),
        fast=True,
    ),
    pair("two_tower", "tower-left-out", "frozen-parameters", consequences=STUCK, lines=("self.optimizer = ",)),
    pair("two_tower", "late-head", "frozen-parameters", consequences=STUCK, lines=("self.optimizer = ",)),
    pair(
        "two_tower",
        "detached-tower",
        "frozen-parameters",
        consequences=STUCK,
        lines=("embedded = embedded.detach()",),
        fast=True,
    ),
    pair("two_tower", "layers-in-forward", "frozen-parameters", consequences=STUCK, lines=("loss.backward()",)),
)

COMPILING: Final = (
    pair("compiled_gate", "item-in-forward", "graph-breaks", lines=("h.abs().max().item()",), fast=True),
    pair("compiled_gate", "branch-on-tensor", "graph-breaks", lines=("h.abs().max() > 20",)),
    pair("compiled_gate", "list-in-forward", "graph-breaks", lines=("self.means.append",)),
)

DATA_LOADING: Final = tuple(
    Training(entry, args, ("dataloader-bottleneck",), ("sync-stalls",), (), lines, 0, fast)
    for entry, args, lines, fast in (
        (
            "pairs/tabular_loader.py",
            ("--fault", "slow-features"),
            ("total += a * b", "for b in values:", "loader = DataLoader("),  # the processors say which
            False,  # workers save time only where processors are free
        ),
        ("pairs/tabular_loader.py", ("--fault", "remote-rows"), ("time.sleep(0.0008)", "loader = DataLoader("), True),
        (
            "pairs/stream_iterable.py",
            ("--fault", "slow-parser"),
            ("record = json.loads(line)", "loader = DataLoader("),
            False,
        ),
        ("faulty/python_augmentation.py", (), ("value = value * random.uniform(", "train_loader = DataLoader("), False),
        ("faulty/two_slow_workers.py", (), ("time.sleep(0.006)", "loader = DataLoader("), False),  # the same
        ("faulty/compressed_stream.py", (), ("rows = pickle.loads(zlib.decompress(shard))", "in DataLoader("), False),
        ("faulty/fresh_iterator_every_step.py", (), ("xb, yb = next(iter(loader))",), False),
        ("faulty/one_parsing_worker.py", (), ("smooth = [sum(values[", "loader = DataLoader("), False),
        ("faulty/slow_collate.py", (), ("if re.fullmatch(re.escape(word), piece):", "loader = DataLoader("), False),
    )
)

MEMORY: Final = (
    pair("char_lstm", "states-kept", LEAK_EITHER, consequences=LEAKING),
    pair("transformer_counting", "losses-kept", LEAK_EITHER, consequences=LEAKING),
    pair("distillation", "teacher-graph-kept", LEAK_EITHER, consequences=LEAKING),
    pair("dqn_corridor", "q-values-kept", LEAK_EITHER, consequences=LEAKING),
    pair("dqn_corridor", "shallow-target", "snapshot-aliased", lines=("target.load_state_dict(q.state_dict())",)),
    pair("denoiser_ema", "outputs-kept", LEAK_EITHER, consequences=LEAKING),
    *(
        pair("orchard_yields", fault, LEAK_EITHER, consequences=LEAKING, lines=(line,), fast=fault == "sum-remade")
        for fault, line in (
            ("list-remade", "losses = losses + [entry]"),
            ("sum-remade", "total = total + worth"),
            ("sums-in-dictionary", "self.sums = {name: total + values[name]"),
            ("meter-of-tensors", "self.total = self.total + value * count"),
            ("report-extended", "self.rows.extend(predictions)"),
        )
    ),
    faulty("running_total_loss", LEAK_EITHER, consequences=LEAKING, fast=True),
    faulty("predictions_kept", LEAK_EITHER, consequences=LEAKING),
    faulty("activation_cache", LEAK_EITHER, consequences=LEAKING),
    faulty(
        "list_never_emptied",
        LEAK_EITHER,
        consequences=LEAKING,
        lines=("readings = []",),
    ),
    faulty("hook_keeps_activations", LEAK_EITHER, consequences=LEAKING),
    faulty(
        "state_kept_in_module",
        f"retain-graph|{LEAK_EITHER}",
        consequences=LEAKING,
        lines=("loss.backward(retain_graph=True)",),
    ),
    faulty("retained_graphs", f"retain-graph|{LEAK_EITHER}", consequences=LEAKING),
    faulty("log_probs_kept", LEAK_EITHER, consequences=LEAKING),
)

LOADED: Final = tuple(
    pair(
        "noisy_readings",
        fault,
        root,
        consequences=("augmentation-repeats",),
        extras=("dataloader-bottleneck", "epoch-boundary-stall"),  # two workers and the training on two processors
        lines=(line,),
        fast=fault == "same-noise",
    )
    for fault, root, line in (
        ("same-noise", "duplicate-augmentation", "train_loader = DataLoader("),
        ("seed-each-epoch", "augmentation-repeats", "np.random.seed(number)"),
        ("noisy-validation", "augmented-validation", "validation = noisy if"),
        ("readings-kept", "host-memory-leak", "self.made.append("),
    )
)

SAVED: Final = (
    pair("saved_and_resumed", "early-copy", "checkpoint-mismatch", lines=("torch.save(",), fast=True),
    pair("saved_and_resumed", "head-forgotten", "checkpoint-mismatch", lines=("torch.save(",)),
    pair(
        "resumable_sounds",
        "parameters-only",
        "checkpoint-mismatch",
        consequences=("unset-running-state",),
        lines=("torch.save(", "named_parameters()"),
        fast=True,
    ),
    pair(
        "resumable_sounds",
        "copied-parameters",
        "checkpoint-mismatch",
        consequences=("unset-running-state",),
        lines=("torch.save(", "named_parameters()"),
    ),
    pair(
        "resumable_sounds",
        "weights-alone",
        "checkpoint-mismatch",
        consequences=("unset-running-state",),
        lines=("torch.save(", "named_parameters()"),
    ),
    pair("saved_and_resumed", "fresh-optimizer", "resume-discontinuity", lines=("torch.load(",), fast=True),
    pair("resumed_schedule", "schedule-lost", "resume-discontinuity", lines=("torch.load(path)",), fast=True),
    pair("resumed_folder", "scheduler-left-out", "resume-discontinuity", lines=('torch.load(self.at("optimizer"))',)),
    pair(
        "resumed_schedule",
        "optimizer-anew",
        "resume-discontinuity",
        lines=("optimizer = torch.optim.SGD(model",),
    ),
    pair("resumed_schedule", "counted-from-zero", "resume-discontinuity", lines=("torch.load(path)",)),
    pair("kept_and_saved", "kept-alias", "snapshot-aliased", lines=("tensor.cpu() for name",), fast=True),
    pair("kept_and_saved", "new-model", "snapshot-aliased", lines=("tensor.cpu() for name",)),
)

PRECISION: Final = (
    pair("amp_float16", "loss-factor", "fp16-overflow", consequences=(*BLOW_UP, "fp16-underflow"), fast=True),
    faulty("fp16_raw_counts", "fp16-overflow", consequences=BLOW_UP, extras=("input-normalization",)),
    faulty("fp16_rate_grows", f"fp16-overflow|{DIVERGES}", consequences=BLOW_UP),
    faulty("fp16_summed_loss", "fp16-overflow|loss-nonfinite", consequences=BLOW_UP),
    faulty("fp16_huge_penalty", "exploding-gradients|fp16-overflow|loss-divergence", consequences=BLOW_UP),
    pair(
        "amp_float16",
        "no-scaler",
        "fp16-without-scaler",
        consequences=("fp16-underflow",),
        lines=('scaler = torch.amp.GradScaler("cpu", enabled=',),
    ),
    pair("amp_float16", "small-scale", "fp16-underflow", consequences=STUCK, fast=True),
    pair("amp_float16", "loss-alone", "autocast-not-applied", lines=("loss = criterion(scores, yb)",), fast=True),
    pair("amp_float16", "inner-region", "autocast-not-applied"),
    pair("amp_float16", "in-place", "autocast-not-applied", lines=("return out.addmm_(x.float(),",)),
    pair("amp_float16", "float32-head"),
    faulty(
        "bfloat16_weights_fine_tuned",
        "lost-updates",
        consequences=STUCK,
        lines=("network = network.to(torch.bfloat16)",),
        fast=True,
    ),
    faulty(
        "closure_bfloat16", "lost-updates", consequences=STUCK, lines=("model = Vat().to(torch.bfloat16)",), fast=True
    ),
    faulty(
        "float16_square_overflows",
        "fp16-overflow|nonfinite-activations",
        consequences=BLOW_UP,
        extras=("input-normalization",),
    ),
    faulty("half_weights", "fp16-without-scaler", consequences=("fp16-underflow",), extras=("lost-updates",)),
    pair(
        "amp_float16",
        "clip-before-unscale",
        "clip-before-unscale",
        consequences=(
            "clipping-always-active",
            "clipping-freezes-updates",
            "constant-output",
            "loss-plateau",
            "update-ratio",
        ),
        lines=("torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=5.0)",),
        fast=True,
    ),
    pair("spectra_scaler", "plain-step", "scaler-misuse", consequences=BLOW_UP, lines=("optimizer.step()",)),
    pair("spectra_scaler", "plain-backward", "crash|scaler-misuse", exit_code=1, lines=("scaler.step(optimizer)",)),
    pair(
        "gravel_scaler",
        "trunk-scaled",
        "clip-before-unscale",
        lines=("clip([*trunk.parameters(), *head.parameters()], 2.0)",),
        fast=True,
    ),
    pair(
        "gravel_scaler",
        "head-scaled",
        "clip-before-unscale",
        lines=("clip(itertools.chain(trunk.parameters(), head.parameters()), 2.0)",),
    ),
    faulty(
        "clip_scaled_gradients",
        "clip-before-unscale",
        consequences=("clipping-always-active", "clipping-freezes-updates", "loss-plateau", "update-ratio"),
        lines=("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",),
    ),
)

EVALUATION: Final = (
    pair(
        "image_trainer",
        "eval-in-train-mode",
        "eval-in-train-mode",
        consequences=NOISY_VALIDATION,
        lines=('if self.fault != "eval-in-train-mode":',),
        fast=True,
    ),
    pair(
        "image_trainer",
        "train-inside-validation",
        "eval-in-train-mode",
        consequences=NOISY_VALIDATION,
        lines=('if self.fault != "eval-in-train-mode":', "self.model.train()"),
    ),
    pair(
        "transformer_counting",
        "no-eval",
        "eval-in-train-mode",
        consequences=NOISY_VALIDATION,
        lines=('if args.fault != "no-eval":',),
    ),
    pair(
        "denoiser_ema",
        "batch-stats",
        "eval-in-train-mode",
        consequences=NOISY_VALIDATION,
        lines=("val = F.mse_loss(ema.model(noisy_held_out), held_out).item()",),
    ),
    pair("ripeness_meter", "sharpness"),
    pair("seed_lots", "copies-first", "train-validation-overlap"),
    pair("seed_lots", "drawn-twice", "train-validation-overlap"),
    pair("seed_lots", "copies-before-one-split", "train-validation-overlap"),
    pair("seed_lots", "one-split"),
    pair("blended_signs", "repeated-first", "train-validation-overlap", consequences=("overfitting",)),
    pair("blended_signs", "few-rows"),
    pair(
        "fault_reports",
        "order-thrown-away",
        "no-shuffle",
        consequences=(*NOISY_VALIDATION, *BLOW_UP),
        lines=("rng.permutation(order)",),
    ),
    pair("fault_reports", "sorted-each-epoch", "no-shuffle", consequences=(*NOISY_VALIDATION, *BLOW_UP)),
    pair("fault_reports", "parts-in-turn"),
    pair("beetle_traits", "as-kept", "no-shuffle", consequences=NOISY_VALIDATION),
    pair("citation_graph", "no-eval", "eval-in-train-mode", consequences=NOISY_VALIDATION),
    pair("functional_dropout", "no-training-flag", "eval-in-train-mode", consequences=NOISY_VALIDATION, fast=True),
    pair(
        "functional_dropout",
        "in-a-list",
        "eval-in-train-mode",
        consequences=NOISY_VALIDATION,
        lines=("self.drops = [nn.Dropout(0.25)]",),
    ),
    pair("functional_dropout", "wrong-model", "eval-in-train-mode", consequences=NOISY_VALIDATION),
    faulty(
        "frozen_is_not_eval",
        "eval-in-train-mode",
        consequences=NOISY_VALIDATION,
        lines=("self.net.requires_grad_(False)",),
        fast=True,
    ),
    faulty(
        "forgot_eval",
        "eval-in-train-mode",
        consequences=NOISY_VALIDATION,
        lines=("val_loss += mse(model(xb), yb).item() / len(val_loader)",),
    ),
    faulty(
        "train_ignores_its_mode",
        "eval-in-train-mode",
        consequences=NOISY_VALIDATION,
        lines=("super().train()",),
        fast=True,
    ),
    faulty("lstm_dropout_validation", "eval-in-train-mode", consequences=NOISY_VALIDATION),
    faulty("attention_dropout_always_on", "eval-in-train-mode", consequences=NOISY_VALIDATION),
    pair("image_trainer", "train-in-eval-mode", "train-in-eval-mode", consequences=("overfitting",), fast=True),
    faulty("early_return_from_eval", "train-in-eval-mode", consequences=("overfitting",), fast=True),
    pair(
        "kelp_counts",
        "kept-late",
        "train-in-eval-mode",
        consequences=("overfitting",),
        lines=("before = net.training",),
    ),
    faulty("never_back_to_train", "train-in-eval-mode", consequences=("overfitting",)),
    pair(
        "transformer_counting",
        "validation-with-grad",
        "eval-with-grad",
        lines=('if args.fault != "no-eval":',),  # the first line of the function beside which no_grad belongs
    ),
    faulty(
        "validation_builds_graphs",
        "eval-with-grad",
        lines=("hits += (model(x, adjacency)",),
        fast=True,
    ),
    faulty(
        "one_step_for_both",
        "eval-with-grad",
        lines=("for batch in val_loader",),  # the loop that validates: the call itself trains as well
        fast=True,
    ),
    pair("loom_sounds", "keras-momentum", "validation-fluctuation", lines=("nn.BatchNorm1d(16, momentum=momentum)",)),
    faulty("memorises_small_set", "overfitting", consequences=("validation-fluctuation",)),
)

NUMBERS: Final = (
    faulty(
        "same_reading_twice",
        "loss-nonfinite|nonfinite-gradients",
        consequences=POISONED,
        lines=("return torch.sqrt(squares)",),
        fast=True,
    ),
    pair("vae", "log-zero", "loss-nonfinite|nonfinite-gradients", consequences=POISONED, fast=True),
    pair(
        "crane_mixture",
        "log-of-zero",
        "loss-nonfinite",
        consequences=POISONED,
        lines=("loss = -torch.log(likelihood(*model(x), y)).mean()",),
        fast=True,
    ),
    pair(
        "padded_sentences",
        "empty-rows",
        "nonfinite-gradients",
        consequences=POISONED,
        lines=("attended, _ = self.attention(words",),
        fast=True,
    ),
    pair("parcel_notes", "all-hidden", "loss-nonfinite", consequences=POISONED, lines=("scores = torch.where(shown",)),
    pair("boxes_of_scenes", "empty", "loss-nonfinite", consequences=POISONED, lines=("dw = torch.log(sizes",)),
    pair("read_digits", "narrow", "loss-nonfinite", consequences=POISONED, lines=("loss = functional.ctc_loss(",)),
    pair("vae", "blank-image", "nonfinite-input|loss-nonfinite", consequences=POISONED),
    pair("siamese_pairs", "sqrt-at-zero", "nonfinite-gradients|loss-nonfinite", consequences=POISONED),
    pair("gru_sentiment", "empty-mask", "loss-nonfinite", consequences=POISONED),
    faulty("missing_measurement", "nonfinite-input|loss-nonfinite", consequences=POISONED),
    faulty(
        "log_of_relu",
        "loss-nonfinite",
        consequences=(*POISONED, "loss-spikes", "gradient-spikes"),
        extras=("loss-spikes", "gradient-spikes"),
    ),
    pair("tide_windows", "own-loss", "nonfinite-input", consequences=POISONED, lines=("/ spread", "past.std(1")),
    pair(
        "tide_windows",
        "bare-spread",
        "nonfinite-input",
        consequences=POISONED,
        lines=("/ spread", "past.std(1"),
    ),
    pair(
        "rain_gauges",
        "log-of-zero",
        "nonfinite-input",
        consequences=POISONED,
        lines=("logged = torch.log(",),
        fast=True,
    ),
    faulty("division_by_spread", "nonfinite-input|loss-nonfinite", consequences=POISONED),
    faulty("unscaled_features_high_lr", DIVERGES, consequences=BLOW_UP, extras=("input-normalization",)),
    faulty("nan_guard_raises", DIVERGES, consequences=(*BLOW_UP, "crash"), extras=("crash",), exit_code=1),
    pair("momentum_regression", "high-lr", DIVERGES, consequences=BLOW_UP),
    pair(
        "momentum_regression",
        "growing-lr",
        DIVERGES,
        consequences=BLOW_UP,
        extras=("learning-rate-schedule",),
        fast=True,
    ),
    faulty("rate_grows_each_epoch", DIVERGES, consequences=BLOW_UP, extras=("learning-rate-schedule",)),
    faulty("rate_jumps_late", f"learning-rate-schedule|{DIVERGES}", consequences=(*BLOW_UP, *DIVERGES.split("|"))),
    faulty(
        "exponential_of_loss",
        "exploding-gradients",
        consequences=BLOW_UP,
        lines=("loss = torch.exp(criterion(model(x), label))",),
        fast=True,
    ),
    faulty("critic_without_penalty", "exploding-gradients", consequences=BLOW_UP, fast=True),
    pair(
        "wave_spectra",
        "bounded-in-vain",
        "exploding-gradients",
        consequences=BLOW_UP,
        lines=("weight.data.clamp(-BOX, BOX)",),
    ),
    faulty(
        "critic_with_idle_penalty",
        "exploding-gradients",
        consequences=BLOW_UP,
        lines=("loss = critic(made).mean() - critic(real).mean()",),
    ),
    pair("tide_scenarios", "constant-penalty", "exploding-gradients", consequences=BLOW_UP, lines=("slope = grad(",)),
    faulty("regulariser_sign", "exploding-gradients|loss-nonfinite|nonfinite-gradients", consequences=BLOW_UP),
    faulty("discount_above_one", "exploding-gradients|loss-divergence|loss-nonfinite", consequences=BLOW_UP),
    faulty("rnn_large_init", "exploding-gradients|loss-nonfinite|nonfinite-gradients", consequences=BLOW_UP),
    faulty("deep_net_large_weights", "exploding-gradients|loss-nonfinite|nonfinite-gradients", consequences=BLOW_UP),
)

LOSS_ARGUMENTS: Final = (
    pair(
        "glyph_classifier",
        "softmax-output",
        "double-softmax",
        consequences=STUCK,
        fast=True,
        lines=("return F.cross_entropy(output, labels)",),
    ),
    pair(
        "glyph_classifier",
        "nll-of-softmax",
        "nll-of-probabilities",
        consequences=STUCK,
        lines=("return F.nll_loss(output, labels)",),
    ),
    pair(
        "glyph_classifier",
        "softmax-over-batch",
        "softmax-wrong-dim",
        consequences=(*STUCK, "overfitting"),
        lines=("return F.nll_loss(output, labels)",),
    ),
    pair(
        "segment_blobs",
        "softmax-last-dim",
        "softmax-wrong-dim",
        consequences=STUCK,
        lines=("layers.append(nn.LogSoftmax(dim=-1))",),
    ),
    pair(
        "segment_blobs",
        "probabilities",
        "double-softmax",
        consequences=STUCK,
        lines=("loss = self.criterion(self.net(picture), mask)",),
    ),
    pair(
        "rent_regression",
        "flat-target",
        "loss-broadcast",
        consequences=STUCK,
        lines=("loss = criterion(net(x), y)",),
        fast=True,
    ),
    pair(
        "rent_regression",
        "column-target",
        "loss-broadcast",
        consequences=STUCK,
        lines=("loss = F.smooth_l1_loss(net(x).squeeze(1), y)",),
    ),
    pair(
        "song_tags",
        "sigmoid-output",
        "double-sigmoid",
        consequences=STUCK,
        lines=("return torch.sigmoid(scores) if self.squash else scores",),
        fast=True,
    ),
    pair(
        "song_tags",
        "relu-output",
        "double-sigmoid",
        consequences=(*STUCK, "dead-relu"),
        lines=("self.tag = nn.Sequential(nn.Linear(64, tags), nn.ReLU())",),
        fast=True,
    ),
    pair(
        "wine_faults",
        "twice-called",
        "double-sigmoid",
        consequences=STUCK,
        lines=("return F.binary_cross_entropy(chance, corked)",),
        fast=True,
    ),
    pair("wine_faults", "twice-written", "double-sigmoid", consequences=STUCK),
    pair("wine_faults", "soft-formula", "double-sigmoid", consequences=STUCK),
    pair("wine_faults", "classes-called", "double-softmax", consequences=STUCK, fast=True),
    pair("wine_faults", "classes-written", "double-softmax", consequences=STUCK),
    pair("wine_faults", "sharpened"),
    pair("wine_faults", "logs-of-logs"),
    pair("wine_faults", "written-once"),
    pair("wine_faults", "classes-once"),
    pair(
        "song_tags",
        "compiled-sigmoid",
        "double-sigmoid",
        consequences=STUCK,
        lines=("loss = criterion(model(song), tags * 0.9 + 0.05)",),
    ),
    faulty(
        "attention_map_kl",
        "nll-of-probabilities",
        consequences=STUCK,
        lines=('loss = F.kl_div(F.softmax(student(x), dim=-1), wanted, reduction="batchmean")',),
    ),
    faulty(
        "recipe_model_unshifted",
        "target-in-input",
        fast=True,
        lines=("y = torch.stack([data[i : i + CONTEXT] for i in starts])",),
    ),
    pair("sea_shanties", "no-mask", "target-in-input", lines=("return self.head(self.layers(x))",), fast=True),
    faulty(
        "place_names_padded",
        "padding-in-loss",
        lines=("loss = criterion(scores.transpose(1, 2), names[:, 1:])",),
        fast=True,
    ),
    pair("hand_written_likelihood", "whole-rows", "padding-in-loss", lines=("loss = surprise.mean()",), fast=True),
    pair(
        "order_slots",
        "filled-with-zeros",
        "padding-in-loss",
        lines=("criterion = nn.CrossEntropyLoss(ignore_index=SKIPPED)",),
        fast=True,
    ),
    pair("char_lstm", "both-ways", "target-in-input", lines=("self.lstm = nn.LSTM(24,",)),
    pair("hand_written_likelihood", "unshifted", "target-in-input", lines=("loss = surprise.mean()",)),
    faulty(
        "implicit_softmax_dim",
        "softmax-wrong-dim",
        consequences=STUCK,
        lines=("return criterion(normalise(head(hidden)).reshape(-1, 5), tags.reshape(-1))",),
    ),
)

SETTINGS: Final = (
    *(
        pair("weather_schedule", fault, "learning-rate-schedule", consequences=STUCK, lines=("scheduler = ",))
        for fault in ("zero-early", "other-optimizer")
    ),
    *(
        pair("weather_schedule", fault, "learning-rate-schedule", consequences=STUCK, lines=("scheduler.step()",))
        for fault in ("cosine-per-batch", "milestones-per-batch", "warmup-per-epoch", "one-cycle-per-epoch")
    ),
    pair("weather_schedule", "cosine-in-batches", "learning-rate-schedule", lines=("scheduler = ",)),
    pair(
        "staged_glazes",
        "moments-emptied",
        "update-spike",
        consequences=("gradient-spikes", "loss-spikes"),
        lines=('state["exp_avg"].zero_()',),
        fast=True,
    ),
    pair(
        "own_adam",
        "steps-kept",
        "update-spike",
        consequences=("gradient-spikes", "loss-spikes"),
        lines=('state["m"].zero_()',),
    ),
    pair("weather_schedule", "forgotten-step", "learning-rate-schedule", lines=("scheduler = ",)),
    pair(
        "leaf_sorting",
        "in-file-order",
        "no-shuffle",
        consequences=(*NOISY_VALIDATION, *BLOW_UP),
        lines=("train_loader = DataLoader(",),
        fast=True,
    ),
    pair(
        "leaf_sorting",
        "sliced-in-file-order",
        "no-shuffle",
        consequences=(*NOISY_VALIDATION, *BLOW_UP),
        lines=("order = torch.randperm(len(data)) if mixed",),
    ),
    pair("leaf_sorting", "sliced"),
    faulty(
        "helper_left_in_order",
        "no-shuffle",
        consequences=(*NOISY_VALIDATION, *BLOW_UP),
        lines=("training = loader_of(",),
        fast=True,
    ),
    faulty(
        "folders_one_by_one",
        "no-shuffle",
        consequences=(*NOISY_VALIDATION, *BLOW_UP),
        lines=("train, held_out = DataLoader(",),
    ),
    faulty(
        "stream_by_species",
        "no-shuffle",
        consequences=(*NOISY_VALIDATION, *BLOW_UP),
        lines=("loader = DataLoader(Recordings(",),
    ),
    faulty(
        "sorted_by_day",
        "no-shuffle",
        consequences=(*NOISY_VALIDATION, *BLOW_UP),
        lines=("loader = DataLoader(dataset, batch_size=None, sampler=BatchSampler(",),
        fast=True,
    ),
    pair("tremor_rnn", "tiny-microbatches", "batchnorm-small-batch"),
    pair("batchnorm_tabular", "batches-of-two", "batchnorm-small-batch", extras=STUCK),
    pair("experts_mixture", "unnamed-gate", "router-collapse"),
    pair("churn_table", "label-column", "target-in-input", lines=("loss = measure(answer, yb)",), fast=True),
    pair("churn_table", "label-written-out", "target-in-input", lines=("loss.backward()",)),
    pair("churn_table", "open-window", "target-in-input", lines=("loss = measure(answer, yb)",)),
    faulty(
        "drawn_by_frequency",
        "class-imbalance",
        consequences=STUCK,
        extras=("overfitting",),
        lines=("sampler = WeightedRandomSampler(shares[kinds], len(kinds))",),
        fast=True,
    ),
    pair("churn_table", "few-leave", "class-imbalance", consequences=STUCK),
    pair(
        "churn_table",
        "weighed-down",
        "class-imbalance",
        consequences=STUCK,
        lines=("measure = nn.BCEWithLogitsLoss(pos_weight=y.mean() / (1 - y.mean()))",),
    ),
    pair("churn_table", "blank-held", "validation-nonfinite", lines=("measure(model(x[:held]), y[:held])",)),
    pair("idle_gauges", "idle-held", "validation-nonfinite", lines=("return (rows - low) / (high - low)",)),
    pair("churn_table", "tight-clip", "clipping-always-active", fast=True),
    pair("churn_table", "queries", "softmax-wrong-dim", lines=(".softmax(self.dim)",)),
    faulty(
        "ores_without_their_labels",
        "loss-plateau",
        consequences=("constant-output",),
        lines=("samples = samples[order]",),
        fast=True,
    ),
    faulty(
        "calls_sorted_by_length",
        "loss-plateau",
        consequences=("constant-output",),
        lines=("pitches = [pitches[i] for i in by_length]",),
        fast=True,
    ),
    faulty("seeded_every_epoch", "same-order-every-epoch", lines=("torch.manual_seed(1234)",), fast=True),
    faulty(
        "split_drawn_twice",
        "train-validation-overlap",
        lines=("return DataLoader(part, batch_size=25)", "_, part = random_split("),
        fast=True,
    ),
    pair("folds_of_samples", "one-model", "train-validation-overlap", fast=True),
    pair("folds_of_samples", "one-model-new-optimizer", "train-validation-overlap"),
    pair(
        "lichen_images",
        "kept-workers",
        "augmentation-repeats",
        extras=("dataloader-bottleneck", "epoch-boundary-stall"),
        lines=('persistent_workers=FAULT == "kept-workers",',),
        fast=True,
    ),
    pair(
        "pollen_images",
        "seeded-by-index",
        "augmentation-repeats",
        lines=("generator = torch.Generator().manual_seed(index)",),
        fast=True,
    ),
    faulty("all_errors_so_far", "throughput-decay", lines=("self.seen",)),
    faulty(
        "scaler_only_fitted",
        "input-normalization",
        consequences=(*BLOW_UP, *STUCK),
        lines=("houses = TensorDataset(", "columns = "),
    ),
    faulty("hooks_never_removed", "throughput-decay", lines=("register_forward_hook",)),
    *(
        pair(
            "soil_probe",
            fault,
            "input-normalization",
            consequences=(*BLOW_UP, *STUCK),
            lines=(line,),
            fast=fault in ("raw-transform", "raw-generator"),
        )
        for fault, line in (
            ("raw-dataset", "row = torch.from_numpy(row)"),
            ("raw-transform", "numbers = torch.as_tensor(row"),
            ("raw-collate", "counts = torch.stack("),
            ("raw-slices", "x = counts[order["),
            ("raw-generator", "yield counts[rows], wet[rows]"),
        )
    ),
    pair(
        "moss_tiles",
        "raw-bytes",
        "input-normalization",
        consequences=(*BLOW_UP, *STUCK),
        lines=("planes = torch.tensor(",),
    ),
    faulty("raw_pixels", "input-normalization", lines=("loader = DataLoader(TensorDataset(image,",), fast=True),
    pair("two_ranks", "no-wrapper", "ranks-out-of-sync", lines=("optimizer.step()",)),
    pair("two_ranks", "past-wrapper", "ranks-out-of-sync", lines=("loss = (called(x) - y).square().mean()",)),
    pair("head_in_ranks", "past-wrapper", "ranks-out-of-sync", lines=("predicted = head.module.predict(features)",)),
    pair("two_ranks", "unfrozen", "ranks-out-of-sync", lines=("model = DistributedDataParallel(model)",)),
    pair("two_ranks", "unfrozen-wrapped"),
    pair("two_ranks", "rate-by-rank", "ranks-out-of-sync", lines=("optimizer = torch.optim.Adam(",)),
    pair(
        "two_ranks",
        "one-schedule",
        "ranks-out-of-sync",
        extras=("learning-rate-schedule",),
        lines=("optimizer = torch.optim.Adam(",),
    ),
    pair("accumulated_in_ranks", "first", "ranks-out-of-sync", lines=("with contextlib.nullcontext() if number",)),
    pair("two_ranks", "slow-rank", "straggler", fast=True),
    pair("letters_in_ranks", "blocks", "straggler", lines=("mine = order[rank * part",)),
    pair(
        "two_ranks", "small-batches", "uneven-batches", extras=("straggler",), lines=("loader = DataLoader(dataset,",)
    ),
    pair("folders_in_ranks", "kept-in-order", "no-shuffle", lines=("sampler = DistributedSampler(dataset",)),
    pair("folders_in_ranks", "mixed-files"),
    pair("two_ranks", "no-set-epoch", "same-order-every-epoch", lines=("for epoch in range(5):",)),
    pair("freight_bundles", "untold", "same-order-every-epoch", lines=("for epoch in range(8):",), fast=True),
    pair("freight_bundles", "in-order"),  # asked to keep it
    pair("two_ranks", "no-sampler", "same-data-on-every-rank", lines=("loader = DataLoader(dataset,",), fast=True),
    pair("two_ranks", "one-seed", "same-data-on-every-rank", lines=("index = torch.randint(len(inputs)",), fast=True),
    pair("two_ranks", "own-seed"),
    pair("wells_in_ranks", "too-early", "same-data-on-every-rank", lines=("loader = wells() if FAULT ==",)),
    pair("numbered_files", "names-as-text", "loss-plateau", lines=("names = sorted(",), fast=True),
    pair("staged_batches", "released-early", "corrupted-copy", consequences=MISFED, lines=FROM_BUFFER),
    pair("staged_batches", "one-buffer", "corrupted-copy", consequences=MISFED, lines=FROM_BUFFER, fast=True),
    faulty(
        "letters_read_early", "corrupted-copy", consequences=MISFED, lines=("self.slots[number].clone()",), fast=True
    ),
    pair(
        "stages_of_sand",
        "one-buffer",
        "corrupted-copy",
        consequences=MISFED,
        lines=("sent.append(dist.isend(self.outgoing, 1))",),
    ),
    faulty("shared_memory_feed", "corrupted-copy", consequences=MISFED, lines=("share_memory_()",)),
    pair("worker_stream", "whole-file", "duplicated-batches", lines=("for line in mine:",), fast=True),
    pair("worker_stream", "asks-early", "duplicated-batches", lines=("worker = get_worker_info()",), fast=True),
)

END_OF_RUN: Final = (
    pair("amp_float16", "no-update", "crash|scaler-misuse", consequences=("crash", "scaler-misuse"), exit_code=1),
    pair("char_lstm", "attached-state", "crash", exit_code=1, lines=("loss.backward()",)),
    pair("batchnorm_tabular", "keep-last", "crash", exit_code=1, lines=("loss = criterion(model(xb), yb)",)),
    pair("batchnorm_tabular", "float64-input", "crash", exit_code=1, lines=("loss = criterion(model(xb), yb)",)),
    pair(
        "batchnorm_tabular",
        "late-key",
        "crash",
        exit_code=1,
        lines=("print(f\"epoch {epoch} train {metrics['train']:.4f} val {metrics['val']:.4f}\")",),
    ),
    pair("gru_sentiment", "unknown-token", "crash", exit_code=1, lines=("self.embedding(tokens), lengths",)),
    faulty(
        "crash_features_outside", "crash", exit_code=1, lines=("inputs = torch.tanh(features(signals))",), fast=True
    ),
    faulty("crash_inplace_sigmoid", "crash", exit_code=1, lines=("loss.backward()",)),
    faulty("crash_gan_step_between", "crash", exit_code=1, lines=("optimizer_d.step()",)),
    pair(
        "added_layers",
        "head-alone",
        "frozen-parameters",
        lines=("hidden = checkpoint(self.block, number, hidden, use_reentrant=True)",),
    ),
    faulty(
        "checkpointed_by_settings",
        "frozen-parameters",
        lines=('checkpointing = {"use_reentrant": True, "preserve_rng_state": False}',),
    ),
    faulty("loss_of_read_numbers", "frozen-parameters", consequences=STUCK, lines=("chosen = torch.tensor(chosen)",)),
    faulty(
        "validation_losses_kept",
        "memory-leak",
        "eval-with-grad",
        consequences=LEAKING,
        lines=("curve.append(loss / 25)", "logits = model(x)"),
    ),
    pair(
        "added_layers",
        "no-gradient",
        "crash",
        exit_code=1,
        lines=("hidden = checkpoint(self.block, number, hidden, use_reentrant=True)",),
    ),
    faulty(
        "crash_state_of_last_batch",
        "crash",
        exit_code=1,
        lines=("loader = DataLoader(", "return self.fc(self.gru(x, self.h0)[0][:, -1]).squeeze(1)"),
    ),
    pair(
        "scenes_in_ranks",
        "whole-model",
        "crash",
        exit_code=1,
        lines=("model = DistributedDataParallel(Scenes(), find_unused",),
    ),
    pair("scenes_in_ranks", "unused-output"),
    faulty("crash_worker_bad_record", "crash", exit_code=1, lines=("float(field)",), fast=True),
    faulty("crash_rebound_weight", "crash", exit_code=1, lines=("weight = weight - 0.1 * weight.grad",)),
    faulty("crash_loss_per_sample", "crash", exit_code=1, lines=("loss.backward()",)),
    faulty("crash_leaf_in_place", "crash", exit_code=1, lines=("p.clamp_(-0.1, 0.1)",)),
    faulty(
        "crash_label_out_of_range",
        "crash",
        extras=("no-shuffle",),
        exit_code=1,
        lines=("loss = criterion(model(inputs), labels)",),
    ),
    faulty("crash_no_grad_fn", "crash", exit_code=1, lines=("loss.backward()",)),
    faulty(
        "crash_shape_mismatch",
        "crash",
        exit_code=1,
        lines=("return self.fc(F.relu(self.conv(x)).flatten(1))",),
        fast=True,
    ),
    faulty(
        "crash_in_validation", "crash", exit_code=1, lines=('labels = torch.load(folder / "validation_labels.pt")',)
    ),
    faulty(
        "best_weights_alias",
        "snapshot-aliased",
        consequences=("overfitting",),
        lines=("self.best_state = self.model.state_dict()",),
        fast=True,
    ),
    faulty("average_not_restored", "resume-discontinuity", lines=("torch.load(path)",)),
    faulty("best_model_by_name", "snapshot-aliased", lines=("self.best_model = model",)),
    pair(
        "weights_in_two_formats",
        "copied-before",
        "weights-not-loaded",
        consequences=("resume-discontinuity",),
        lines=("model.load_state_dict(torch.load(path))",),
        fast=True,
    ),
    faulty(
        "pretrained_under_a_prefix",
        "weights-not-loaded",
        lines=("body.load_state_dict(torch.load(file), strict=False)",),
        fast=True,
    ),
    faulty("killed_by_memory_limit", "killed", exit_code=137, fast=True),
    faulty("killed_by_abort", "killed|crash", exit_code=134),
    faulty("terminated_by_scheduler", "killed", exit_code=143),
    faulty("killed_between_deliveries", "killed", exit_code=142),
    faulty(
        "prefetch_thread_gone",
        "standstill",
        consequences=("killed",),
        exit_code=142,
        lines=("raise EOFError(", "ready.get()"),
    ),
)

TWO_FAULTS: Final = (
    faulty(
        "two_faults_zero_grad_and_eval",
        "missing-zero-grad",
        "eval-in-train-mode",
        consequences=(*BLOW_UP, *NOISY_VALIDATION),
        fast=True,
    ),
    faulty("two_faults_leak_and_slow_loader", LEAK_EITHER, "dataloader-bottleneck", consequences=LEAKING),
    faulty("two_faults_eval_and_crash", "eval-in-train-mode", "crash", consequences=NOISY_VALIDATION, exit_code=1),
)

TARGETS_AND_LAYERS: Final = (
    pair(
        "sliced_accumulation",
        "clip-every-microbatch",
        "clip-per-microbatch",
        lines=("nn.utils.clip_grad_norm_(model.parameters(), 1.0)",),
        fast=True,
    ),
    pair("sliced_accumulation", "cleared-every-microbatch", "discarded-microbatches"),
    pair("sliced_accumulation", "not-divided", "unscaled-accumulation", consequences=BLOW_UP),
    pair(
        "product_mlp",
        "no-activations",
        "linear-stack",
        consequences=STUCK,
        lines=("x = self.second(x)", "return self.last(x)"),
        fast=True,
    ),
    pair("weld_inspector", "own-statistics", "batchnorm-in-validation|eval-in-train-mode", fast=True),
    pair("weld_inspector", "train-never-called", "train-override-bypassed", lines=("for pick in torch.randperm",)),
    pair("weld_inspector", "tests-a-new-model", "unset-running-state", consequences=NOISY_VALIDATION, fast=True),
    pair("visitor_clusters", "centres-first", "unset-running-state", lines=("codes = self.encoder(x)",), fast=True),
    pair("sensor_net", "tiny-rate", "update-ratio", consequences=STUCK, lines=("self.optimizer = kind(",), fast=True),
    pair("sensor_net", "huge-rate", "learning-rate-too-high", consequences=(*BLOW_UP, *STUCK)),
    pair(
        "sensor_net",
        "frozen-by-clip",
        "clipping-freezes-updates",
        consequences=("clipping-always-active", *STUCK),
        extras=("clipping-always-active",),
        lines=("nn.utils.clip_grad_norm_(self.parameters(), self.clip)",),
        fast=True,
    ),
    pair("product_mlp", "rate-of-one", "learning-rate-too-high", consequences=(*BLOW_UP, *STUCK)),
    faulty(
        "rate_of_a_dataclass",
        "learning-rate-too-high",
        consequences=(*BLOW_UP, *STUCK),
        lines=("rate: float = 1.0",),
        fast=True,
    ),
    Training("faulty/rate_of_a_dataclass.py", ("--rate", "0.002")),
    Training(
        "faulty/rate_of_a_dataclass.py",
        ("--rate", "1.0"),
        ("learning-rate-too-high",),
        (*BLOW_UP, *STUCK),
        lines=("optimizer = torch.optim.Adam(",),
        fast=True,
    ),
    faulty("rate_default_of_an_option", "update-ratio", consequences=STUCK, lines=("default=1e-7,",), fast=True),
    Training("faulty/rate_default_of_an_option.py", ("--learning-rate", "2e-3")),
    pair("answers_causal", "shifted-labels", "labels-shifted-twice", consequences=STUCK),
    pair("answers_causal", "answers-cut-off", "labels-all-ignored", consequences=(*POISONED, *STUCK), fast=True),
    pair("answers_causal", "mean-of-means", "unequal-microbatch-weights"),
    pair(
        "word_tagger",
        "masked-mean",
        "unequal-microbatch-weights",
        lines=("return surprise.sum() / mask.float().sum() / PARTS",),
        fast=True,
    ),
    pair("pulse_reader", "whole-model", "batchnorm-in-validation", lines=("network.train()",), fast=True),
    pair("word_tagger", "plain-mean", "unequal-microbatch-weights"),
    pair("word_tagger", "written-out", "unequal-microbatch-weights"),
    pair("word_tagger", "mean-times-share"),
    pair("recipes_causal", "padding-is-end", "eos-never-target", fast=True),
    pair("recipes_causal", "sentences-padding-is-end", "eos-never-target"),
    pair(
        "ore_grades",
        "small-weights",
        "vanishing-gradients",
        consequences=(*STUCK, "dead-relu"),
        lines=("p.data.normal_(0.0, 0.02)",),
        fast=True,
    ),
    pair("recipes_causal", "sentences"),
    pair("recipes_causal", "two-starts", "doubled-bos"),
    pair("recipes_causal", "whole-rows", "prompt-in-loss", lines=("return row, [-100] * counted",)),
    pair("recipes_causal", "packed", "packing-without-boundaries", lines=("loss = F.cross_entropy(",), fast=True),
    pair("recipes_causal", "packed-to-length", "packing-without-boundaries", lines=("loss = F.cross_entropy(",)),
    pair("recipes_causal", "apart-to-length"),
    pair(
        "segments_causal",
        "as-flags",
        "packing-without-boundaries",
        lines=('return {"input_ids": ids, "attention_mask": numbers',),
        fast=True,
    ),
    pair("recipes_causal", "late-mask", "mask-after-softmax"),
    pair(
        "preferences_causal",
        "own-reference",
        "reference-is-policy",
        consequences=STUCK,
        lines=("reference = own if",),
        fast=True,
    ),
    pair(
        "preferences_causal",
        "own-network",
        "reference-is-policy",
        consequences=STUCK,
        lines=("reference = own if",),
        fast=True,
    ),
    pair(
        "pretrained_then_preferred",
        "reference-is-policy",
        "reference-is-policy",
        lines=("reference = model if",),
    ),
    pair("pretrained_then_preferred", "same-optimizer", "reference-is-policy", lines=("reference = model if",)),
    pair("preferences_causal", "own-texts-again", "reference-is-policy", consequences=STUCK),
    pair("preferences_causal", "fresh-reference", "reference-is-policy", consequences=STUCK),
    pair(
        "slow_trunk",
        "one-peak",
        "group-rate-overwritten",
        lines=("scheduler = torch.optim.lr_scheduler.OneCycleLR(",),
        fast=True,
    ),
    pair("slow_trunk", "first-rate", "group-rate-overwritten", lines=("def get_lr(self):",)),
    pair("slow_trunk", "own-schedule"),
    pair("harbour_tides", "past-call", "direct-forward-call", lines=("mse_loss(call(x), y)",), fast=True),
    pair("harbour_tides", "numpy-unseeded", "partial-seeding"),
    pair(
        "frost_warning",
        "forgotten",
        "eval-in-train-mode",
        extras=("eval-with-grad",),
        lines=("answers = model(held_evenings).argmax(1)",),
        fast=True,
    ),
    pair("frost_warning", "forgotten-whole", "eval-in-train-mode", extras=("eval-with-grad",)),
    pair("frost_warning", "forgotten-slices", "eval-in-train-mode", extras=("eval-with-grad",)),
    pair("frost_warning", "labels-itself"),
    pair("frost_warning", "varied"),
    pair("frost_warning", "left", "stops-short", lines=("for epoch in range(epochs):",)),
    pair("frost_warning", "limited"),
    pair("rain_gauge", "never-reset", "reported-loss-mismatch", fast=True),
    pair("rain_gauge", "reset-by-epoch", "reported-loss-mismatch"),
    pair("rain_gauge", "times-batch", "reported-loss-mismatch"),
    pair("rain_gauge", "over-samples", "reported-loss-mismatch"),
    pair("more_words", "frozen-rows", "new-tokens-untrained", fast=True),
    pair("more_words", "rows-of-file", "new-tokens-untrained"),
    pair("more_words", "only-padding"),
    pair("more_words", "trained-copy"),
    pair("more_words", "trained-offsets"),
    pair("gait_reader", "attends-samples", "samples-mixed", fast=True, collect=("--probe",)),
    pair("gait_reader", "view-for-permute", "samples-mixed", collect=("--probe",)),
    pair("gait_reader", "own-dice", "nondeterministic-step", collect=("--probe",)),
    pair("gait_reader", "among-samples", collect=("--probe",)),
    pair("gait_reader", "centred", collect=("--probe",)),
    pair("dial_turner", "column", "loss-broadcast", fast=True, lines=("weighed = logs * advantage",)),
    pair("dial_turner", "table"),
    pair("meter_columns", "samples-as-columns", "samples-mixed", fast=True, lines=("self.along = nn.GRU",)),
    pair("meter_columns", "patches-first", "samples-mixed", lines=("self.attend = nn.MultiheadAttention(WIDTH, 2)",)),
    pair("meter_columns", "columns-first"),
    pair("noise_schedule", "first-steps", "narrow-timesteps", fast=True),
    pair("noise_schedule", "first-beside", "narrow-timesteps"),
    pair(
        "valve_events",
        "turned",
        "constant-output",
        consequences=("loss-plateau",),
        lines=("h = self.encoder(x, src_key_padding_mask=~padding)",),
        fast=True,
    ),
    pair("valve_events", "turned-inside", "constant-output", consequences=("loss-plateau",)),
    pair("valve_events", "left-padded"),
    pair("valve_events", "summary"),
    pair("valve_events", "inside"),
    pair(
        "noise_schedule",
        "drawn-twice",
        "constant-output",
        consequences=("loss-plateau",),
        lines=("target = torch.randn_like(x)",),
    ),
    pair("noise_schedule", "beside"),
    pair("diffusion_in_one_module", "first-steps", "narrow-timesteps", fast=True),
    pair("diffusion_in_one_module", "first-steps-of-table", "narrow-timesteps"),
    *(
        pair(
            "pretrained_tagger",
            fault,
            "repeated-initialization",
            lines=("model.apply(init_weights)",),
            fast=True,
        )
        for fault in ("init-after-load", "probe")
    ),
    pair(
        "pretrained_tagger",
        "fill-after-load",
        "repeated-initialization",
        lines=("module.weight.data.normal_(0.0, 0.02)",),
        fast=True,
    ),
    pair(
        "batch_scaler",
        "no-epsilon",
        "nonfinite-input",
        consequences=("loss-nonfinite", "nonfinite-gradients", "nonfinite-activations"),
        lines=("spread = x.std(dim=0)", "return (x - x.mean(dim=0)) / (spread + epsilon)"),
        fast=True,
    ),
    pair("experts_mixture", "no-balance", "router-collapse"),
    pair(
        "steered_experts", "bias-raised", "router-collapse", lines=("self.choice_bias += 0.02 * (load - load.mean())",)
    ),
    pair("counted_experts", "counts-alone", "router-collapse", lines=("return EXPERTS * (used * used).sum()",)),
    pair("experts_mixture", "balance-subtracted", "router-collapse", lines=("loss = error - 0.05 * balance",)),
    pair("sorting_groups", "one-reward", "zero-advantage", consequences=STUCK, fast=True),
    pair("sorting_groups", "one-reward-and-entropy", "zero-advantage", consequences=STUCK),
    pair("sorting_groups", "entropy"),
    pair("sorting_groups", "rounded", "zero-advantage", consequences=STUCK),
    pair(
        "sorting_groups",
        "repeated",
        "zero-advantage",
        consequences=STUCK,
        lines=("prompts, actions = (one.repeat_interleave",),
    ),
    pair("lift_operator", "rate", "entropy-collapse", consequences=BLOW_UP, fast=True),
    pair("lift_operator", "bandit"),
    pair("parcel_sorter", "entropy-added", "entropy-collapse", fast=True),
    pair("parcel_sorter", "baseline-attached", "advantage-not-detached", fast=True),
    pair("tank_levels", "asked-again", "ratio-always-one", fast=True),
    pair("tank_levels", "one-pass"),
    pair("valve_control", "stale-actor", "sampler-mismatch", fast=True),
    pair("valve_control", "clipped-actions", "sampler-mismatch"),
    pair("rhyme_writer", "temperature", "sampler-mismatch", fast=True),
    pair("rhyme_writer", "dropout", "sampler-mismatch"),
    pair("rhyme_writer", "no-end"),  # a hint
    pair("couplet_writer", "temperature", "sampler-mismatch", fast=True),
    pair("couplet_writer", "rounded", "zero-advantage", consequences=STUCK, fast=True),
    pair("couplet_writer", "passes"),
    pair("couplet_writer", "small"),
    pair("lamp_patrol", "stale-actor", "sampler-mismatch", consequences=("entropy-collapse",), fast=True),
    pair("lamp_patrol", "mixed-actions", "sampler-mismatch"),
    pair("lamp_patrol", "exploring"),
    pair("lamp_patrol", "actors"),
    pair("lamp_patrol", "queue"),
    pair("kiln_burner", "entropy-added", "entropy-collapse", fast=True),
    pair("resin_mixer", "repeated", "entropy-collapse"),
    pair("one_cycle_vae", "heavy-prior", "constant-output", consequences=STUCK),
    pair("ball_frames", "mean-pixels", "constant-output", consequences=STUCK, lines=("error = F.mse_loss(output, x)",)),
    pair("pixel_codes", "mean-pixels", "constant-output", consequences=STUCK, lines=("error = F.binary",)),
    pair(
        "owl_calls",
        "summed-rate",
        "constant-output",
        consequences=("loss-plateau",),
        lines=("loss = nn.functional.cross_entropy(scores, told) + 0.03 * rate_of(code, fault)",),
    ),
    pair(
        "peak_spectra",
        "summed-prior",
        "constant-output",
        consequences=STUCK,
        lines=("loss = nn.functional.mse_loss(output, x) + prior.sum()",),
    ),
    pair(
        "heartbeat_codes",
        "summed-rate",
        "constant-output",
        consequences=STUCK,
        lines=('return functional.mse_loss(parts["decoder"](codes), beats), rate',),
    ),
    pair("turbine_power", "two-units", "gradient-spikes|loss-spikes", lines=("loss.backward()",), fast=True),
    pair("turbine_power", "clipped-late", "gradient-spikes|loss-spikes", lines=("nn.utils.clip_grad_norm_(",)),
    pair("turbine_power", "smooth-maps", "constant-output", consequences=STUCK),
    pair("one_cycle_vae", "left-early", "stops-short"),
    faulty("recurrence_out_of_bounds", "exploding-gradients", consequences=BLOW_UP, lines=("loss.backward()",)),
    pair("tide_tables", "counts-batches", "stops-short", lines=("if made >= total_updates:",), fast=True),
    faulty("iterator_made_once", "stops-short", lines=("batches = iter(",), fast=True),
    faulty("generator_for_all_epochs", "stops-short", lines=("batches = noisy(train)",), fast=True),
    faulty("return_in_the_loop", "stops-short", lines=("for epoch in range(epochs):",), fast=True),
    pair(
        "heat_demand",
        "first-house-only",
        "batch-dimension-mismatch",
        lines=('houses[0]["walls"]',),
        fast=True,
    ),
    pair("harvest_plots", "last-soil", "batch-dimension-mismatch", lines=('soils = torch.tensor([plot["soil"]])',)),
    pair("heat_demand", "anomaly-mode", "debug-mode-left-on", lines=("set_detect_anomaly(True)",), fast=True),
    pair(
        "heat_demand", "profiler-again", "debug-mode-left-on", consequences=("slow-steps",), lines=("schedule(wait=1",)
    ),
    pair("frozen_by_name", "bias", "frozen-parameters", consequences=STUCK, lines=(FREEZE,), fast=True),
    pair("frozen_by_name", "norms", "frozen-parameters", consequences=STUCK, lines=(FREEZE,)),
    pair("pond_adapters", "both-zero", "zero-gradients", consequences=STUCK, lines=("torch.zeros(rank",)),
    pair("binary_codes", "rounded-answers", "zero-gradients", consequences=STUCK),
    pair("binary_codes", "no-way-back", "frozen-parameters", consequences=STUCK, lines=("self.encode = ",)),
    pair("shared_trunk", "both-hold-trunk", "shared-parameter-two-optimizers", fast=True),
    pair("shared_trunk", "stale-average", "ema-not-updated"),
    pair("averaged_classifier", "slow-average", "ema-not-updated"),
    pair("ring_average", "slow-average", "ema-not-updated", lines=("mine.lerp_(theirs, 1 - decay)",)),
    pair("ring_average", "forgotten-average", "ema-not-updated"),
    pair("shadow_weights", "once-an-epoch", "ema-not-updated", lines=("ema.update()",)),
    pair("shadow_weights", "never-updated", "ema-not-updated", lines=("ema.update()",)),
    pair("hooks_in_turn", "clip-first", "clip-before-unscale", consequences=("clipping-freezes-updates",)),
)

HEALTHY_FAST: Final = frozenset(
    {"accumulate_modulo", "dropout_validated_correctly", "fast_loader_tiny_model", "fp16_initial_skips", "gan_toy"}
)
HEALTHY: Final = tuple(
    Training(f"{folder}/{script.name}", fast=script.stem in HEALTHY_FAST)
    for folder in ("healthy", "pairs")
    for script in sorted((FOLDER / folder).glob("*.py"))
)

TRAININGS: Final[tuple[Training, ...]] = (
    *HEALTHY,
    *ZERO_GRAD,
    *NO_GRADIENT,
    *DATA_LOADING,
    *COMPILING,
    *MEMORY,
    *LOADED,
    *SAVED,
    *PRECISION,
    *EVALUATION,
    *NUMBERS,
    *LOSS_ARGUMENTS,
    *SETTINGS,
    *END_OF_RUN,
    *TWO_FAULTS,
    *TARGETS_AND_LAYERS,
)
