"""Lines of the script's files that do something by a name, read off bytecode: nothing is wrapped, and what is found may
never have run. The analyzers name such a line only beside evidence of what happened.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

from tracelyze.collectors.internals.local_variables import attributes
from tracelyze.collectors.program.lines.assigned.rebinding import rebound
from tracelyze.collectors.program.lines.instructions import (
    LONGEST,
    METHODS,
    TAKES,
    by_line,
    name_taken,
    names_of,
    names_stored,
)
from tracelyze.collectors.program.lines.named_calls import with_inner
from tracelyze.collectors.program.lines.settings.named_arguments import named_arguments

CALLED: Final[Mapping[str, frozenset[str]]] = {
    "freeze": frozenset({"requires_grad_"}),
    "trainable": frozenset({"requires_grad"}),
    "anomaly": frozenset({"set_detect_anomaly", "detect_anomaly"}),
    "buffer": frozenset({"from_numpy", "frombuffer", "share_memory_"}),
    "split": frozenset({"random_split", "train_test_split", "Subset", "permutation", "randperm"}),
    "shuffle": frozenset({"shuffle"}),
    "average": frozenset({"lerp_", "_foreach_lerp_", "update_parameters"}),
    "entropy": frozenset({"entropy"}),
    "draw": frozenset({"randint", "randint_like"}),
    "dropout": frozenset({"scaled_dot_product_attention", "dropout", "dropout1d", "dropout2d", "dropout3d"})
    | {"alpha_dropout", "feature_alpha_dropout"},
    "in-place-product": frozenset({"addmm_", "baddbmm_", "addbmm_"}),
    "batch-norm": frozenset({"batch_norm", "instance_norm"}),
    "clear-text": frozenset({"zero_grad"}),
    "set-epoch": frozenset({"set_epoch"}),
    "eval-mode": frozenset({"eval"}),
    "train-mode": frozenset({"train"}),
    "flat": frozenset({"sign", "sgn", "round", "floor", "ceil", "trunc"}),
    "fill": frozenset({"constant_", "fill_", "uniform_"}),
    "refill": frozenset({"normal_", "uniform_", "trunc_normal_", "exponential_", "randn", "randn_like", "rand"}),
    "hook": frozenset({"register_hook"}),
    "module-hook": frozenset({"register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"})
    | {"register_full_backward_pre_hook", "register_backward_hook"},
    "sixteen": frozenset({"bfloat16", "float16", "half"}),
    "sigmoid": frozenset({"sigmoid", "Sigmoid", "hardsigmoid", "Hardsigmoid"}),
    "begin-text": frozenset({"apply_chat_template", "bos_token", "bos_token_id"}),
    "limit": frozenset({"setrlimit"}),
    "collator": frozenset({"DataCollatorForLanguageModeling"}),
    "adapters-text": frozenset({"LoraConfig", "AdaLoraConfig"}),
    "scaler-text": frozenset({"GradScaler"}),
    "byte-scaled": frozenset({"uint8", "ToTensor", "to_tensor", "convert_image_dtype", "ToDtype"}),
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
SINGULAR: Final = frozenset(  # by what a gradient may be lost at: signals/gradients/singular_operations.py
    {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "norm", "vector_norm", "std", "cdist", "reciprocal", "logit"}
) | {"acos", "asin", "arccos", "arcsin", "acosh", "atanh", "erfinv", "pow"}
GROWS: Final = frozenset({"append", "appendleft", "extend", "add", "update", "setdefault"})
NO_TENSORS: Final = frozenset({"math", "np", "numpy", "self", "wandb", "logging", "logger", "run", "mlflow"})
BEST: Final = re.compile(
    r"^_?best_?(?:model|net|network|module|policy|classifier|encoder|estimator|weights|params|parameters|tensors|state)?$"
)
WAITED: Final = re.compile(
    r"(?:^|_)(?:wait(?:ed|ing)?|stale|strikes|bad_epochs|no_improve\w*|not_improved|since_best|without_\w+)$"
    r"|patience_(?:count|left|used)",
    re.IGNORECASE,
)
REWARDS: Final = re.compile(r"(?:^|_)rewards?(?:_|$)", re.IGNORECASE)  # functions that give them
END: Final = re.compile(  # what an end symbol is called
    r"^_?(?:(?:eos|eot|im_end|end_of_(?:text|turn|sequence|sentence))(?:_?(?:id|idx|index|token|tok|symbol)){0,2}"
    r"|(?:end|stop)_?(?:id|idx|token|tok|symbol)(?:_?id)?)$",
    re.IGNORECASE,
)
_END_CONSTANTS: Final = frozenset({"END", "STOP"})  # in small letters they are any place
_COMPARES: Final = ("==", "!=", "bool(==)", "bool(!=)")  # Python 3.13 writes down where the result is made a bool
_NAMES: Final = frozenset({*ASSIGNED, *CUTS, *ANEW}.union(*CALLED.values()))
_GENERATOR: Final = 0x20  # CO_GENERATOR
_MOST_WRAPPERS: Final = 4
_MOST: Final = 4000  # functions of a file


class Text(NamedTuple):
    """What a file of the program defines: its functions, the names of its data sets, and the functions of these."""

    functions: list[CodeType]
    datasets: frozenset[str]
    readers: list[CodeType]


def of_file(filename: str) -> Text:
    """What stands in a file of the program, without the code of the file itself."""
    found: dict[int, CodeType] = {}
    datasets: set[str] = set()
    readers: list[CodeType] = []
    for module in list(sys.modules.values()):
        names = attributes(module)
        if names.get("__file__") != filename:
            continue
        for one in list(names.values()):
            is_class = issubclass(type(one), type)
            owned = list(type.__getattribute__(one, "__dict__").values()) if is_class else [one]
            if is_class and any(base.__name__ == "Dataset" for base in type.__getattribute__(one, "__mro__")[1:]):
                datasets.add(one.__name__)
                readers += [code for code in _codes(owned, filename) if code.co_name != "__init__"]
            for code in _codes(owned, filename):
                found[id(code)] = code
    return Text(list(found.values())[:_MOST], frozenset(datasets), readers[:_MOST])


def lines(code: CodeType, datasets: frozenset[str] = frozenset()) -> list[tuple[str, int]]:
    """Roles and lines of a function: what it calls and assigns by the names above, and where it makes a data set."""
    known = {*code.co_names, *code.co_varnames, *code.co_cellvars}
    found = dict.fromkeys(("rebound", line) for line in (rebound(code) if code.co_name == "step" else ()))
    if not (known & _NAMES or known & datasets or _keyed(code)):
        return list(found)
    before, owner = None, ""
    made = 0  # the line of the latest call that makes a tensor
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
            roles = [role for role, names in CALLED.items() if one.argval in names]
            if one.argval == "seed" and owner != "random":  # the seed itself, and no call of random.seed
                roles = []
            elif "seed" in roles and (code.co_flags & _GENERATOR or loop_around(code, line) is not None):
                roles = ["reseed" if role == "seed" else role for role in roles]
            if "flat" in roles and (one.opname not in METHODS or owner in NO_TENSORS):  # Python's round(), math.floor()
                roles.remove("flat")
            roles += ["data"] * (one.argval in datasets) + ["cut"] * (one.argval in CUTS)
            found.update(dict.fromkeys((role, line) for role in roles))
            made = line if one.argval in ANEW else made
        before = one.argval if one.opname == "LOAD_CONST" and type(one.argval) is str else None
        owner = one.argval if one.opname in TAKES else ""
    return list(found)


def _keyed(code: CodeType) -> bool:
    return any(type(one) is str and one in KEYED for one in code.co_consts)


def bests(code: CodeType) -> list[tuple[str, int]]:
    """Lines that assign what is named after the best model while a loop runs, and those that take it at another time.

    A function without a loop may be called in one: a method that sets an attribute of its object.
    """
    names = {name for name in (*code.co_names, *code.co_varnames, *code.co_cellvars) if BEST.match(name)}
    if not names:
        return []
    found: dict[tuple[str, int], None] = {}
    around, outermost = loops(code), _outermost_heads(code)
    for line, one in by_line(code):
        stored = names.intersection(names_stored(one))
        inside = any(first <= line <= last for first, last in around)
        if stored and code.co_name != "__init__":
            called = not around and one.opname == "STORE_ATTR"
            if called or inside:
                found["best", line] = None
        elif not stored and name_taken(one) in names and (not inside or line in outermost):
            found["best-used", line] = None
    return list(found)


def _outermost_heads(code: CodeType) -> list[int]:
    """Lines of `for` in no other loop: what they go over is computed once."""
    around = loops(code)
    heads = [line for line, one in by_line(code) if one.opname == "FOR_ITER"]
    return [line for line in heads if sum(first <= line <= last for first, last in around) == 1]


def waits(code: CodeType) -> list[tuple[str, int]]:
    """Lines that count on what is named after epochs without progress, in a loop or in a method, and that set it."""
    known = (*code.co_names, *code.co_varnames, *code.co_cellvars)
    names = {name for name in known if WAITED.search(name)}
    if any("patience" in name.lower() for name in known):
        names.update(name for name in known if name in ("count", "counter", "_counter"))
    if not names or code.co_name == "__init__":
        return []
    found: dict[tuple[str, int], None] = {}
    around, counts, taken = loops(code), False, set[str]()
    for line, one in by_line(code):
        stored = names_stored(one)
        for name in names.intersection(stored):
            called = not around and one.opname == "STORE_ATTR"
            if called or any(first <= line <= last for first, last in around):
                found["waits" if counts and name in taken else "waits-reset", line] = None
        if stored:
            counts, taken = False, set()
        else:
            counts |= one.opname == "BINARY_OP" and one.argrepr.rstrip("=") in ("+", "-")
            taken.update(name for name in names_of(one) if type(name) is str)
    return list(found)


def ends(code: CodeType) -> list[int]:
    """Lines of a function that compare something with what is named as an end symbol, by ==, != or `eq`."""
    known = (*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars)
    names = {name for name in known if name in _END_CONSTANTS or END.match(name)}
    if not names:
        return []
    found: dict[int, None] = {}
    before, method = "", False
    for line, one in by_line(code):
        compares = one.opname == "COMPARE_OP" and one.argrepr in _COMPARES
        if before in names and (compares or (method and "CALL" in one.opname)):
            found[line] = None
        if "CALL" in one.opname:
            method = False
        elif one.opname in TAKES:
            method = method or one.argval in ("eq", "ne")
        before = name_taken(one) if one.opname.startswith("LOAD_") and one.opname != "LOAD_CONST" else ""
    return list(found)


def equalities(code: CodeType) -> list[int]:
    """Lines of a function that ask whether two things are equal, or one is in the other."""
    found: dict[int, None] = {}
    for line, one in by_line(code):
        if one.opname == "CONTAINS_OP" or (one.opname == "COMPARE_OP" and one.argrepr in _COMPARES):
            found[line] = None
    return list(found)


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


def unread(keys: set[str], codes: list[CodeType]) -> set[str]:
    """Those of these keys that functions give to a dictionary that they make, and name at no other place.

    A dictionary in which all keys are constants is made of one tuple of them. Other constants count as read.
    """
    written: set[str] = set()
    for code in codes:
        if len(code.co_code) > LONGEST:
            return set()
        here = [one for _, one in by_line(code)]
        for one, after in zip(here, here[1:] + here[-1:], strict=True):
            if one.opname != "LOAD_CONST":
                continue
            if type(one.argval) is tuple and after.opname == "BUILD_CONST_KEY_MAP":
                written |= keys.intersection(key for key in one.argval if type(key) is str)
            elif after.opname != "STORE_SUBSCR":
                named = one.argval if type(one.argval) in (tuple, frozenset) else (one.argval,)
                keys = keys.difference(name for name in named if type(name) is str)
    return written & keys


def loops(code: CodeType) -> list[tuple[int, int]]:
    """First and last line of each `for` and `while` of a function: what a jump goes back over."""
    lines: dict[int, int] = {}  # by offset
    found: list[tuple[int, int]] = []
    for line, one in by_line(code):
        lines[one.offset] = line
        if "JUMP" in one.opname and type(one.argval) is int and one.argval <= one.offset:
            first = lines.get(one.argval, line)
            there = [at for start, _, at in code.co_lines() if at and one.argval <= start <= one.offset]
            found.append((first, max(there, default=line)))
    return found


def singular(code: CodeType) -> list[int]:
    """Lines of a function that divide, or call what has no finite value or derivative somewhere, by its name."""
    found: set[int] = set()
    owner, constant = "", False
    for line, one in by_line(code):
        divides = one.opname == "BINARY_OP" and one.argrepr in ("/", "/=") and not constant
        if divides or (one.opname in TAKES and one.argval in SINGULAR and owner not in NO_TENSORS):
            found.add(line)
        if one.opname not in ("PUSH_NULL", "PRECALL", "CACHE"):
            owner, constant = name_taken(one), one.opname == "LOAD_CONST"
    return sorted(found)


def kept(code: CodeType) -> list[int]:
    """Lines of a method that put something into a list, set or dictionary of its object."""
    found: set[int] = set()
    owner, holder = "", False  # `holder`: an attribute of the object was just taken
    for line, one in by_line(code):
        grows = one.opname in METHODS and one.argval in GROWS and holder
        if grows or (one.opname == "STORE_SUBSCR" and holder):
            found.add(line)
        if one.opname in METHODS:
            holder = owner == "self"
        elif one.opname == "BINARY_SUBSCR" or one.argrepr == "[]":  # it was read
            holder = False
        owner = name_taken(one)
    return sorted(found)


def loop_around(code: CodeType, line: int) -> int | None:
    """The line of the innermost `for` of a function around one of its lines; None where no loop stands around it."""
    found = None
    for at, one in by_line(code):
        if one.opname == "FOR_ITER" and at <= line:
            last = max((there for start, _, there in code.co_lines() if there and start < one.argval), default=at)
            found = at if last >= line else found
    return found


def batches_of(code: CodeType, functions: list[CodeType]) -> list[CodeType]:
    """The generators of a file that a function asks for by their name: what makes the batches of a loop."""
    return [one for one in functions if one.co_flags & _GENERATOR and one.co_name in code.co_names]


def _codes(owned: list[Any], filename: str) -> Iterator[CodeType]:
    """Functions among these objects. By their exact types: others may compute their attributes, even their class."""
    for one in owned:
        kind = type(one)
        function = one.__func__ if kind in (staticmethod, classmethod) else one.fget if kind is property else one
        if type(function) is FunctionType:
            for _ in range(_MOST_WRAPPERS):  # torch.no_grad() as a decorator, within torch's around the step
                wrapped = function.__dict__.get("__wrapped__")
                function = wrapped if type(wrapped) is FunctionType else function
            if function.__code__.co_filename == filename:
                yield from with_inner(function.__code__)
