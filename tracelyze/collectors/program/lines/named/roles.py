"""The roles of a line by what it calls and assigns, by its name: `requires_grad_` freezes, `random_split` splits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dis import Instruction
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.assigned.rebinding import handed_out, rebound
from tracelyze.collectors.program.lines.instructions import METHODS, TAKES, by_line, names_of, names_stored
from tracelyze.collectors.program.lines.loops.extents import loop_around
from tracelyze.collectors.program.lines.named import dimensions
from tracelyze.collectors.program.lines.named.divergences import divergences
from tracelyze.collectors.program.lines.settings.named_arguments import named_arguments

CALLED: Final[Mapping[str, frozenset[str]]] = {
    "freeze": frozenset({"requires_grad_"}),
    "trainable": frozenset({"requires_grad"}),
    "anomaly": frozenset({"set_detect_anomaly", "detect_anomaly"}),
    "buffer": frozenset({"from_numpy", "frombuffer", "share_memory_"}),
    "parameters-text": frozenset({"named_parameters"}),
    "repeats": frozenset({"choice", "choices", "resample", "fit_resample", "multinomial", "repeat", "tile"})
    | {"repeat_interleave"},
    "split": frozenset({"random_split", "train_test_split", "Subset", "permutation", "randperm"}),
    "shuffle": frozenset({"shuffle"}),
    "orders": frozenset({"argsort"}),
    "average": frozenset({"lerp_", "_foreach_lerp_", "update_parameters"}),
    "entropy": frozenset({"entropy"}),
    "draw": frozenset({"randint", "randint_like"}),
    "dropout": frozenset({"scaled_dot_product_attention", "dropout", "dropout1d", "dropout2d", "dropout3d"})
    | {"alpha_dropout", "feature_alpha_dropout"},
    "made-anew": frozenset({"Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"}),
    "in-place-product": frozenset({"addmm_", "baddbmm_", "addbmm_"}),
    "batch-norm": frozenset({"batch_norm", "instance_norm"}),
    "clear-text": frozenset({"zero_grad"}),
    "set-epoch": frozenset({"set_epoch"}),
    "eval-mode": frozenset({"eval"}),
    "train-mode": frozenset({"train"}),
    "flat": frozenset({"sign", "sgn", "round", "floor", "ceil", "trunc"}),
    "fill": frozenset({"constant_", "fill_", "uniform_"}),
    "fit": frozenset({"fit"}),
    "transforms": frozenset({"transform", "fit_transform", "mean_", "scale_", "var_", "center_", "data_min_"}),
    "trainer-mean": frozenset({"mean"}),
    "counts": frozenset({"one_hot", "bincount", "histc"}),
    "zero-fill": frozenset({"zeros_", "zero_", "zeros", "zeros_like"}),
    "refill": frozenset({"normal_", "uniform_", "trunc_normal_", "exponential_", "randn", "randn_like", "rand"}),
    "hook": frozenset({"register_hook"}),
    "module-hook": frozenset({"register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"})
    | {"register_full_backward_pre_hook", "register_backward_hook"},
    "sixteen": frozenset({"bfloat16", "float16", "half"}),
    "sigmoid": frozenset({"sigmoid", "Sigmoid", "hardsigmoid", "Hardsigmoid"}),
    "begin-text": frozenset({"apply_chat_template", "bos_token", "bos_token_id"}),
    "limit": frozenset({"setrlimit"}),
    "collator": frozenset({"DataCollatorForLanguageModeling"}),
    "checkpointing": frozenset({"checkpoint", "checkpoint_sequential"}),  # of activations, by what its line says
    "adapters-text": frozenset({"LoraConfig", "AdaLoraConfig"}),
    "special-tokens": frozenset({"add_special_tokens", "add_tokens"}),
    "scaler-text": frozenset({"GradScaler"}),
    "byte-scaled": frozenset({"uint8", "ToTensor", "to_tensor", "convert_image_dtype", "ToDtype"}),
    "group-text": frozenset({"init_process_group"}),
    "sends": frozenset({"isend"}),
    "under-way": frozenset({"irecv", "all_reduce", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor"}),
    "wait-text": frozenset({"wait"}),  # of requests, among others
    "listing": frozenset({"listdir", "scandir", "glob", "iglob", "rglob", "iterdir"}),
    "step-text": frozenset({"step"}),  # of an optimizer, a scheduler or a scaler: what its line says tells
    "rate-scheduler": frozenset(
        {"PiecewiseLinear", "LinearCyclicalScheduler", "CosineAnnealingScheduler"}
    ),  # of ignite
    "seed": frozenset({"manual_seed", "manual_seed_all", "seed_everything", "set_seed", "seed"})
    | {"default_rng", "RandomState", "Random"},  # generators that are made with their seed
}
CUTS: Final = frozenset({"detach", "detach_", "no_grad", "inference_mode", "numpy"})
ANEW: Final = frozenset({"tensor", "Variable"})  # with requires_grad=True: a tensor without the graph of its numbers
OLD: Final = ("logp", "logps", "log_prob", "log_probs", "logprob", "logprobs", "log_pi")
ASSIGNED: Final = {
    "requires_grad": "freeze", "training": "train-mode", "labels": "labels", "grad": "grad-set",
    **dict.fromkeys(("advantages", "advantage", "adv"), "advantage"),
    **dict.fromkeys(("ref", "ref_model", "ref_net", "ref_policy"), "reference"),
    **dict.fromkeys(("reference", "reference_model", "reference_policy", "policy_ref", "model_ref"), "reference"),
    **dict.fromkeys(("pad_token", "pad_token_id"), "padding"),
    **{name: "old-policy" for one in OLD for name in (f"old_{one}", f"{one}_old")},
}  # fmt: skip
KEYED: Final = {"labels": "labels", "lr": "rate-text"}  # `batch["labels"] = ...`, `group["lr"] = rate`
AS_ATTRIBUTE: Final = {
    "freeze": True,
    "train-mode": True,
    "grad-set": True,
    "labels": False,
}  # others are both, variables as well
ONLY_IN: Final = {
    "made-anew": "forward",  # what __init__ makes is made once
    "trainer-mean": "compute_loss",
}  # functions of one name
NO_TENSORS: Final = frozenset({"math", "np", "numpy", "self", "wandb", "logging", "logger", "run", "mlflow"})
REWARDS: Final = re.compile(r"(?:^|_)rewards?(?:_|$)", re.IGNORECASE)  # functions that give them
_SORTS: Final = "sorted"
_NAMES: Final = frozenset({*ASSIGNED, *CUTS, *ANEW, _SORTS}.union(*CALLED.values()))
_GENERATOR: Final = 0x20  # CO_GENERATOR


def lines(code: CodeType, datasets: frozenset[str] = frozenset()) -> list[tuple[str, int]]:
    """Roles and lines of a function: what it calls and assigns by the names above, and where it makes a data set."""
    known = {*code.co_names, *code.co_varnames, *code.co_cellvars}
    found: dict[tuple[str, int], None] = dict.fromkeys(("divergence", line) for line in divergences(code))
    if code.co_name == "step":
        found |= dict.fromkeys(("rebound", line) for line in rebound(code))
        found |= dict.fromkeys(("by-dimensions", line) for line in dimensions.decided(code))
    else:
        found |= dict.fromkeys(("handed-out", line) for line in handed_out(code))
    if not (known & _NAMES or known & datasets or _keyed(code)):
        return list(found)
    before, owner = None, ""
    elsewhere = {role for role, name in ONLY_IN.items() if name != code.co_name}
    made = 0  # the line of the latest call that makes a tensor
    wrapped = 0  # the line that last named Parameter
    sorts = 0  # and the one that last named sorted
    for line, one in by_line(code):
        for name in names_stored(one):
            attribute, role = one.opname == "STORE_ATTR", ASSIGNED.get(name)
            if role is not None and attribute == AS_ATTRIBUTE.get(role, attribute):
                found[role, line] = None
        if made and "requires_grad" in named_arguments(code, one):
            found["anew", made] = None
        if one.opname == "STORE_SUBSCR" and before is not None and before in KEYED:
            found[KEYED[before], line] = None
        elif one.opname in TAKES:
            wrapped = line if one.argval == "Parameter" else wrapped
            roles = [role for role in _called(code, line, one, owner, line - wrapped) if role not in elsewhere]
            roles += ["data"] * (one.argval in datasets) + ["cut"] * (one.argval in CUTS)
            found.update(dict.fromkeys((role, line) for role in roles))
            made = line if one.argval in ANEW else made
            sorts = line if one.argval == _SORTS else sorts
            if one.argval == "range" and line == sorts:
                found["orders", line] = None
        before = one.argval if one.opname == "LOAD_CONST" and type(one.argval) is str else None
        owner = one.argval if one.opname in TAKES else ""
    return [(role, line) for role, line in found if role != "labels" or not _measures(code)]


def _measures(code: CodeType) -> bool:
    """Whether a function computes metrics of predictions: its labels are not those that are trained on."""
    return "metric" in code.co_name or "label_ids" in code.co_names


def _called(code: CodeType, line: int, one: Instruction, owner: str, below: int) -> list[str]:
    """The roles of what an instruction takes of `owner`; `below`: by how many lines it stands below Parameter."""
    roles = [role for role, names in CALLED.items() if one.argval in names]
    if one.argval == "seed" and owner != "random":  # the seed itself, and no call of random.seed
        roles = []
    elif "seed" in roles and (code.co_flags & _GENERATOR or loop_around(code, line) is not None):
        roles = ["reseed" if role == "seed" else role for role in roles]
    if "flat" in roles and (one.opname not in METHODS or owner in NO_TENSORS):  # Python's round(), math.floor()
        roles.remove("flat")
    if "zero-fill" in roles and not one.argval.endswith("_") and below:  # zeros that are no parameter
        roles.remove("zero-fill")
    return roles


def _keyed(code: CodeType) -> bool:
    return any(type(one) is str and one in KEYED for one in code.co_consts)


def made_into(code: CodeType, role: str) -> frozenset[str]:
    """The names that a function takes in the statements which assign a name of this role (ASSIGNED)."""
    found, taken = set[str](), set[str]()
    for _, one in by_line(code):
        stored = names_stored(one)
        if any(ASSIGNED.get(name) == role for name in stored):
            found |= taken
        if stored or one.opname == "POP_TOP":
            taken = set()
        elif one.opname.startswith("LOAD_") and one.opname not in ("LOAD_CONST", "LOAD_ATTR", *METHODS):
            taken.update(name for name in names_of(one) if type(name) is str)
    return frozenset(name for name in found if ASSIGNED.get(name) != role)
