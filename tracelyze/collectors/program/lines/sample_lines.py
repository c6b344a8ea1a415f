"""Lines by which a loader's samples are made: those that draw random numbers, the one that makes the sample what the
model is given, and the one that seeds the workers. Read off the bytecode of what the dataset calls: not that they ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import CodeType
from typing import Any, Final, NamedTuple

from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.lines import definitions, sample_generators
from tracelyze.collectors.program.lines.instructions import LONGEST, METHODS, by_line, names_of

DRAWS: Final = (
    frozenset({"normal", "uniform", "rand", "randn", "random", "randint", "integers", "choice", "choices", "sample"})
    | {"gauss", "standard_normal", "permutation", "shuffle", "beta", "rand_like", "randn_like", "normal_", "uniform_"}
    | {"bernoulli", "exponential", "poisson", "triangular", "multinomial", "randperm", "random_sample", "getrandbits"}
)
CONVERTS: Final = frozenset(
    {"from_numpy", "tensor", "as_tensor", "astype", "float", "ToTensor", "to_tensor", "pil_to_tensor"}
) | {"FloatTensor", "Tensor", "stack", "array", "asarray"}
SEEDS: Final = frozenset({"seed", "manual_seed", "seed_everything", "set_seed"})
MOST: Final = 16  # lines of a kind
_ASKS: Final = "get_worker_info"
_LABEL: Final = re.compile(r"^(?:ys?|y_\w+|\w*label\w*|\w*target\w*|class\w*)$", re.IGNORECASE)


class Line(NamedTuple):
    """What a line of a function takes by name and stores, and whether it ends the function."""

    number: int
    taken: frozenset[str]
    methods: frozenset[str]
    stored: frozenset[str]
    returns: bool


def draws(dataset: Any, collate: Any, sites: Sites) -> None:
    """Record the lines that draw."""
    found = [
        (code, line.number)
        for code in [*_readers(dataset), *_own(collate)]
        for line in _lines(code)
        if DRAWS.intersection(line.methods)
    ]
    for code, line in found[:MOST]:
        sites.at("draws", code, line)


def sample(dataset: Any, collate: Any, sites: Sites) -> int | None:
    """The number of the line that makes a sample the numbers that the model is given: in a transform, else where the
    dataset reads it, else where the batch is put together."""
    readers = _readers(dataset)
    codes = [*readers[1:], *readers[:1], *_own(collate)]
    for code in codes:
        for line in _lines(code):
            if CONVERTS.intersection(line.methods) and not any(_LABEL.match(name) for name in line.stored):
                return sites.at("sample", code, line.number)
    for code in codes[-1:] if not readers else readers[:1]:
        for line in _lines(code):
            if line.returns and line.taken:
                return sites.at("sample", code, line.number)
    return None


def of_batches(maker: CodeType, functions: list[CodeType], sites: Sites) -> None:
    """Record the line that makes a batch the numbers that the model is given: in a function of the file which this
    generator of batches names, else in the generator itself."""
    asked = [one for one in functions if one.co_name in maker.co_names and one is not maker]
    for code in [*asked, maker]:
        for line in _lines(code):
            if CONVERTS.intersection(line.methods) and not any(_LABEL.match(name) for name in line.stored):
                sites.at("batch-sample", code, line.number)
                return


def ignores_index(dataset: Any) -> bool | None:
    """Whether `__getitem__` never reads the index that it is given, as one that draws its samples. None where its code
    is not the script's own, or takes its arguments as a whole."""
    code = next(iter(_readers(dataset)), None)
    if code is None or code.co_name != "__getitem__" or code.co_argcount < len(("self", "index")):
        return None
    name = code.co_varnames[1]
    if name in code.co_cellvars or "locals" in code.co_names or len(code.co_code) > LONGEST:
        return False
    return not any("LOAD" in one.opname and name in names_of(one) for _, one in by_line(code))


def asked_when_made(dataset: Any, sites: Sites) -> None:
    """Record the line that asks a stream's worker while the stream is made, in the training process: in `__init__`, or
    in a method that it names and that nothing else of the class names."""
    methods = {name: code for name in dir(type(dataset)) if (code := definitions.code_of_method(type(dataset), name))}
    made = methods.get("__init__")
    if made is None or any(_ASKS in code.co_names for name, code in methods.items() if name == "__iter__"):
        return
    others = {name for own, code in methods.items() if own != "__init__" for name in code.co_names}
    for name, code in methods.items():
        if _ASKS in code.co_names and (name == "__init__" or (name in made.co_names and name not in others)):
            asking = (line for line, one in by_line(code) if _ASKS in names_of(one))
            sites.at("worker-asked", code, next(asking, code.co_firstlineno))
            return


def worker_seed(initialize: Any, sites: Sites) -> None:
    """Record the line of a worker_init_fn of the script's own that seeds."""
    for code in _own(initialize):
        for line in _lines(code):
            if SEEDS.intersection(line.methods | line.taken):
                sites.at("worker-seed", code, line.number)
                return


def _readers(dataset: Any) -> list[CodeType]:
    """The script's code that reads a sample of a dataset, or of the one that it wraps: `__getitem__` comes first."""
    own = (one for one in definitions.wrapped_in(dataset) if definitions.code_of_method(type(one), "__getitem__"))
    reader = next(own, None)
    return [] if reader is None else sample_generators.called(reader)


def _own(function: Any) -> list[CodeType]:
    code = definitions.code_of(function)
    return [] if code is None else [code]


def _lines(code: CodeType) -> Iterator[Line]:
    """The lines of a function, in the order of their numbers."""
    taken: dict[int, tuple[set[str], set[str], set[str], set[str]]] = {}
    for line, one in by_line(code):
        names, methods, stored, ends = taken.setdefault(line, (set(), set(), set(), set()))
        given = names_of(one)
        names.update(name for name in given if type(name) is str and one.opname.startswith("LOAD_"))
        methods.update([one.argval] if one.opname in METHODS else [])
        stored.update(name for name in given if type(name) is str and one.opname.startswith("STORE_"))
        ends.update([one.opname] if one.opname == "RETURN_VALUE" else [])
    for number, (names, methods, stored, ends) in sorted(taken.items()):
        yield Line(number, frozenset(names), frozenset(methods), frozenset(stored), bool(ends))
