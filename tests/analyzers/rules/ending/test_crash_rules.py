"""crash: the families of exceptions, what is said of each, and which of several ranks failed first."""

from __future__ import annotations

import pytest

from tests.analyzers.exceptions import exception
from tracelyze.analyzers.computed.crashes import exceptions
from tracelyze.analyzers.recorded import exits
from tracelyze.diagnosis import Exit

CRASHES = {
    "scaler-without-step": "No inf checks were recorded prior to update.",
    "scaler-without-gradients": "No inf checks were recorded for this optimizer.",
    "batchnorm-single-value": "Expected more than 1 value per channel when training, got input size torch.Size([1, 8])",
    "backward-twice": "Trying to backward through the graph a second time (or directly access saved tensors)",
    "inplace-modification": "a variable needed for gradient computation has been modified by an inplace operation",
    "leaf-inplace": "a leaf Variable that requires grad is being used in an in-place operation.",
    "non-scalar-backward": "grad can be implicitly created only for scalar outputs",
    "no-grad-fn": "element 0 of tensors does not require grad and does not have a grad_fn",
    "fp16-weights-with-scaler": "Attempting to unscale FP16 gradients.",
    "marked-ready-twice": "Expected to mark a variable ready only once. This error is caused by one of the following",
    "unreduced-parameters": "Expected to have finished reduction in the prior iteration before starting a new one.",
    "unreduced-outputs": "Expected to have finished reduction in the prior iteration before starting a new one. "
    "Since `find_unused_parameters=True` is enabled, this likely means that not all `forward` outputs participate",
    "weights-only": "Weights only load failed. This file can still be loaded, to do so you have two options",
    "no-cuda-device": "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
    "device-mismatch": "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "dtype-mismatch": "mat1 and mat2 must have the same dtype, but got Double and Float",
    "shape-mismatch": "mat1 and mat2 shapes cannot be multiplied (32x100 and 64x10)",
    "label-out-of-range": "Target 10 is out of bounds.",
    "cuda-error": "CUDA error: device-side assert triggered",
    "worker-killed": "DataLoader worker (pid 4711) is killed by signal: Killed. ",
    "collective-timeout": "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
    "state-dict": 'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight".',
}


@pytest.mark.parametrize("family", CRASHES)
def test_crash_families(make, family) -> None:
    known = exceptions.recognise("RuntimeError", CRASHES[family])
    assert known is not None
    assert known.name == family
    traceback = (
        f'Traceback (most recent call last):\n  File "train.py", line 9, in main\nRuntimeError: {CRASHES[family]}'
    )
    process = make.process(events=exception("RuntimeError", traceback), end=Exit("exception", 1))
    _, _, finding = make.check("crash", process)
    assert finding.title.startswith("RuntimeError: ")
    assert known.title in finding.summary
    assert (finding.first_step, finding.location.line) == (7, 9)
    assert finding.fix == known.fix


def test_the_title_of_a_crash_is_its_class_and_the_first_of_its_message() -> None:
    assert exceptions.title("KeyError", "'tok100'", " at train.py:26") == "KeyError: 'tok100' at train.py:26"
    assert exceptions.title("builtins.ValueError", "ValueError") == "ValueError"
    bounds = exceptions.title("IndexError", "Target 5 is out of bounds.", " at train.py:21")
    assert bounds == "IndexError: Target 5 is out of bounds at train.py:21"
    whole = "No inf checks were recorded prior to update."
    assert exceptions.title("AssertionError", whole, f" at {'x' * 30}.py:21") == f"AssertionError: {whole}"
    long = exceptions.title("RuntimeError", "word " * 100, " at train.py:26")
    assert len(long) <= 90
    assert long.endswith("… at train.py:26")
    assert len(exceptions.title("OSError", "x" * 300)) == len("OSError: ") + 80


def test_the_message_of_a_crash_does_not_repeat_its_class() -> None:
    text = "torch.distributed.DistNetworkError: DistNetworkError: The server socket has failed to listen."
    assert exceptions.message("DistNetworkError", text) == "The server socket has failed to listen."


UNREDUCED = """RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. \
This error indicates that your module has parameters that were not used in producing loss. You can enable unused \
parameter detection by passing `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by
making sure all `forward` function outputs participate in calculating loss.
Parameter indices which did not receive grad for rank 1: 2 3
 In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL"""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("RuntimeError", "RuntimeError: first line\n and a hint\n", "RuntimeError: first line"),
        ("ValueError", ("ValueError: Caught ValueError in worker.\nOriginal Traceback (most recent call last):\n"
         '  File "a.py", line 1\nValueError: bad row'), "ValueError: bad row"),
        ("OddError", ("OddError: Caught BadRow in worker.\nOriginal Traceback (most recent call last):\n"
         '  File "a.py", line 1\nBadRow: bad row'), "OddError: BadRow: bad row"),
        ("KeyError", "'tok'", "KeyError: 'tok'"),
    ],
)  # fmt: skip
def test_the_end_of_a_run_tells_the_first_line_of_its_exception(name, text, said) -> None:
    """But for an exception of a worker, which begins with that of another process."""
    assert exits._message({"name": name, "text": f"Traceback (most recent call last):\n  File\n{text}"}) == said


def test_parameters_that_a_wrapper_waited_for_are_named_and_its_line_is_shown(make) -> None:
    """By the order of all of the model's parameters, where these were looked at; else their number alone."""

    def crashed(names: tuple[str, ...], wrappers: int = 1):
        rows = [{"step": 1, "optimizer": 0, "parameter": name, "grad_norm": 1.0} for name in names]
        process = make.process(
            events=exception("RuntimeError", UNREDUCED),
            end=Exit("exception", 1),
            models=[{"model": index, "name": "DistributedDataParallel", "parameters": 4} for index in range(wrappers)],
            sites=[{"site": 5, "file": "train.py", "line": 4, "source": "net = DDP(Net().to(rank), [rank])"}],
            more={
                "parameters": rows,
                "modules": [{"model": index, "module": "", "kind": "", "made_at": 5} for index in range(wrappers)],
            },
        )
        return make.check("crash", process)[2]

    finding = crashed(("body.weight", "body.bias", "head.depth.weight", "head.depth.bias"))
    assert "Here 2 tensors of head.depth got none." in finding.summary
    assert (finding.location.line, finding.seen_at.line) == (4, 9)
    assert finding.fix_code == "net = DDP(Net().to(rank), [rank], find_unused_parameters=True)"
    assert "not used in producing loss." in str(finding.evidence), "up to its last whole sentence"
    assert "and by" not in finding.summary
    assert "Here b and c.weight got none." in crashed(("a.weight", "a.bias", "b", "c.weight")).summary
    assert "Here 2 tensors got none." in crashed(("body.weight", "body.bias")).summary, "of four, two were looked at"
    assert crashed(("a", "b", "c", "d"), wrappers=2).location.line == 9


@pytest.mark.parametrize(
    ("marked", "table", "line"),
    [("self.pos_embedding(pos)", "self.pos_embedding", 4), ("self.words(ids)", "self.words", 9), ("", "embedding", 9)],
)
def test_the_table_that_a_traceback_marks(make, marked: str, table: str, line: int) -> None:
    """Of positions, which run past the end of their table, the line that makes that is shown."""
    source = "x = self.words(ids) + self.pos_embedding(pos)"
    marks = " " * (4 + source.find(marked)) + "^" * len(marked) if marked else ""
    text = f'Traceback (most recent call last):\n  File "/w/train.py", line 9, in forward\n    {source}\n{marks}\n'
    event = exception("IndexError", f"{text}IndexError: index out of range in self")[0] | {"source": source}
    rows = [("words", 6), ("pos_embedding", 5)]
    process = make.process(
        events=[event],
        end=Exit("exception", 1),
        sites=[
            {
                "site": 5,
                "role": "module",
                "file": "train.py",
                "line": 4,
                "source": "self.pos_embedding = Embedding(9)",
            },
            {"site": 6, "role": "module", "file": "train.py", "line": 3, "source": "self.words = Embedding(90, 8)"},
        ],
        more={"modules": [{"model": 0, "module": f"enc.{n}", "kind": "Embedding", "made_at": at} for n, at in rows]},
    )
    finding = make.check("crash", process)[2]
    assert f"< {table}.num_embeddings" in finding.fix_code
    assert finding.location.line == line
    assert ("the ids are positions" in finding.fix) == (line == 4)
    assert finding.fix_code.startswith("# above line 9\n") == (line == 4), "else it would not say where it belongs"


@pytest.mark.parametrize(
    ("function", "lines", "head", "line"),
    [
        ("forward", (4, 20), "", 4),  # of an encoder above it and a decoder below it
        ("forward", (2, 5), "", 5),
        ("forward", (12, 20), "", 9),
        ("forward", (2, 5), "class Pooled(Encoder):", 9),  # which may have inherited any of them
    ],
)
def test_a_table_of_positions_that_several_classes_make(make, function: str, lines, head: str, line: int) -> None:
    source = "x = x + self.pos_embedding(pos)"
    text = f'Traceback (most recent call last):\n  File "/w/train.py", line 9, in {function}\n    {source}\n'
    event = exception("IndexError", f"{text}IndexError: index out of range in self")[0] | {"source": source}
    made = {"role": "module", "file": "train.py", "function": "__init__", "source": "self.pos_embedding = Embedding(9)"}
    own = {"site": 0, "role": "forward", "file": "train.py", "line": 9, "function": function, "source": source}
    own |= {"excerpt": f"{head}\n    def {function}(self, x):\n        {source}", "excerpt_line": 7}
    parts = [{"model": 0, "module": f"{at}.pos_embedding", "kind": "Embedding", "made_at": at} for at in lines]
    process = make.process(
        events=[event | {"function": function}],
        end=Exit("exception", 1),
        sites=[own, *(made | {"site": at, "line": at} for at in lines)],
        more={"modules": parts},
    )
    assert make.check("crash", process)[2].location.line == line


@pytest.mark.parametrize(
    ("below", "source", "line"),
    [
        ("model = Llama(config)", "trainer.train()", 4),
        ("model.resize_token_embeddings(len(tok))", "trainer.train()", 9),  # it has the rows
        ("model = Own(config)", "x = self.words(ids)", 9),  # a table of the script's own, which is named
    ],
)
def test_tokens_that_are_added_without_rows_for_them(make, below: str, source: str, line: int) -> None:
    adds = 'tok.add_special_tokens({"additional_special_tokens": ["<tool>"]})'
    site = {"site": 5, "role": "special-tokens", "file": "train.py", "line": 4, "function": "main", "source": adds}
    site |= {"excerpt": f"{adds}\n{below}", "excerpt_line": 4}
    text = f'Traceback (most recent call last):\n  File "/w/train.py", line 9, in main\n    {source}\n'
    event = exception("IndexError", f"{text}IndexError: index out of range in self")[0] | {"source": source}
    finding = make.check("crash", make.process(events=[event], end=Exit("exception", 1), sites=[site]))[2]
    assert finding.location.line == line
    assert ("resize_token_embeddings(len(tok))" in finding.fix_code) == (line == 4)


def test_an_unknown_crash_is_debugged_with_the_own_command(make) -> None:
    def fix_code(facts) -> str:
        process = make.process(events=exception("OddError", "OddError: 7"), end=Exit("exception", 1), facts=facts)
        return make.check("crash", process)[2].fix_code

    own = {"argv": ["train.py", "--name", "a b"], "world_size": 1}
    assert fix_code(own) == "python -m pdb -c continue train.py --name 'a b'"
    for not_to_be_typed in ({}, own | {"world_size": 2}, {"argv": ["-c"]}):
        assert fix_code(not_to_be_typed) == ""
    blocking = make.process(
        events=exception("RuntimeError", "RuntimeError: CUDA error: device-side assert triggered"),
        end=Exit("exception", 1), facts=own,
    )  # fmt: skip
    assert make.check("crash", blocking)[2].fix_code == "CUDA_LAUNCH_BLOCKING=1 python train.py --name 'a b'"


def test_a_crash_over_names_is_not_about_numbers(make) -> None:
    for name, traits in (("KeyError", {"no-numbers"}), ("FloatingPointError", set())):
        process = make.process(events=exception(name, f"{name}: 7"), end=Exit("exception", 1))
        assert make.check("crash", process)[2].traits == traits


def test_a_crash_shows_the_loss_of_the_training_that_ran(make) -> None:
    steps = {"optimizer": [0] * 30 + [1] * 10, "loss": [float(one) for one in range(40)], "time": list(range(40))}
    optimizers = [{"optimizer": 0, "name": "SGD"}, {"optimizer": 1, "name": "SGD"}]
    process = make.process(
        steps=steps, optimizers=optimizers, events=exception("KeyError", "KeyError: 'tok100'", step=40),
        end=Exit("exception", 1),
    )  # fmt: skip
    (chart,) = make.check("crash", process)[2].charts
    assert chart.title == "Training loss of training 2 of 2"
    assert chart.lines[0].y[0] == 30.0


def test_crash_of_a_missing_gradient_and_in_a_worker() -> None:
    update = "Traceback:\n  File train.py, line 9\n    w = w - lr * w.grad\n"
    update += "TypeError: unsupported operand type(s) for *: 'float' and 'NoneType'"
    assert exceptions.recognise("TypeError", update).name == "grad-is-none-in-update"
    other = "TypeError: unsupported operand type(s) for *: 'float' and 'NoneType'"
    assert exceptions.recognise("TypeError", other) is None
    worker = (
        "ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal Traceback...\nValueError: bad record"
    )
    assert exceptions.recognise("ValueError", worker).name == "worker-exception"
    assert exceptions.message("builtins.KeyError", "Traceback\nKeyError: 'label'") == "'label'"


@pytest.mark.parametrize(
    ("name", "text", "family"),
    [
        ("AttributeError", "  File t.py, line 9\n    out.loss.item()\n", None),  # a model that was given no labels
        ("AttributeError", "  File t.py, line 9\n    w.grad.item()\n", "grad-is-none"),
    ],
)
def test_none_is_a_gradient_where_the_line_asks_for_one(name: str, text: str, family: str | None) -> None:
    said = f"Traceback (most recent call last):\n{text}{name}: 'NoneType' object has no attribute 'item'"
    assert getattr(exceptions.recognise(name, said), "name", None) == family


@pytest.mark.parametrize(
    ("name", "text", "family"),
    [
        ("RuntimeError", "Error(s) in loading state_dict for Net:\n\tsize mismatch for fc.weight: ...", "state-dict"),
        ("TypeError", "'weights_only' is an invalid keyword argument for Unpickler()", None),
        ("_pickle.UnpicklingError", "Re-running `torch.load` with `weights_only` set to `False` ...", "weights-only"),
        ("requests.exceptions.ConnectionError", "(ConnectionResetError(104, 'Connection reset by peer'))", None),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer", None),
        ("torch.distributed.DistNetworkError", "Connection reset by peer", "collective-timeout"),
        ("RuntimeError", "[/g/gloo/pair.cc:598] Connection closed by peer [127.0.0.1]:40212", "collective-timeout"),
        ("IndexError", "index out of range in self", "id-out-of-range"),
    ],
)
def test_words_that_other_exceptions_have_too(name: str, text: str, family: str | None) -> None:
    assert getattr(exceptions.recognise(name, f"{name}: {text}"), "name", None) == family


def test_rows_that_are_selected_are_no_embedding() -> None:
    text = "Traceback:\n  File t.py, line 9\n    x.index_select(0, rows)\nIndexError: index out of range in self"
    assert exceptions.recognise("IndexError", text) is None


def test_an_unknown_crash_is_told_as_it_is(make) -> None:
    process = make.process(events=exception("ValueError", "ValueError: nonsense"), end=Exit("exception", 1))
    assert make.check("crash", process)[2].title == "ValueError: nonsense at train.py:9"


def test_no_crash(make) -> None:
    stopped = make.process(events=exception("KeyboardInterrupt", "KeyboardInterrupt"), end=Exit("interrupted", 130))
    for process in (make.process(), stopped, make.process(end=Exit("running"))):
        assert make.check("crash", process)[0] == "passed"
    assert make.check("crash", make.process(end=Exit("vanished")))[0] == "skipped"


PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:16769."


def rank(make, number: int, at: float, name: str, text: str, end: Exit | None = None, world: int = 2):
    """A rank of a job that ended with this exception, or as `end` says, so many seconds after it began."""
    facts = {"rank": number, "world_size": world, "host": "here", "launcher": "here-1", "clock": {"zero": 1000.0}}
    events = [row | {"time": at} for row in exception(name, text)] if name else []
    process = make.process(events=events, end=end or Exit("exception", 1, text), facts=facts)
    process.name = f"rank{number:05d}"
    return process


def test_a_peers_error_is_the_consequence_even_if_it_came_first(make) -> None:
    first = rank(make, 1, 2.5, "KeyError", "KeyError: 'price'")
    lost = rank(make, 0, 2.0, "RuntimeError", PEER)
    _, _, finding = make.check("crash", lost, first)
    assert finding.title == "KeyError: 'price' at train.py:9"
    assert (finding.ranks, finding.confidence) == ([1], "certain")
    asked = rank(make, 0, 3.0, "", "", Exit("signal", None, "asked to terminate (SIGTERM)"))
    assert make.check("killed", asked, first)[0] == "passed"


def test_a_rank_that_ends_with_an_exit_code_takes_the_others_along(make) -> None:
    """torch.multiprocessing.spawn catches a rank's exception, ends it with 1 and asks the others to end."""
    failed = rank(make, 0, 2.0, "", "", Exit("finished", 1))
    asked = rank(make, 1, 3.0, "", "", Exit("signal", None, "asked to terminate (SIGTERM), in read at line 6 of a.py"))
    assert make.check("killed", failed, asked)[0] == "passed"
    well = rank(make, 0, 2.0, "", "", Exit("finished", 0))
    _, _, finding = make.check("killed", well, asked)
    assert (finding.location.file, finding.location.line) == ("a.py", 6)
    known = [{"site": 1, "role": "forward", "file": "/home/me/a.py", "line": 3, "function": "main", "source": ""}]
    asked.tables["sites"] = make.process(sites=known).tables["sites"]
    assert make.check("killed", well, asked)[2].location.file == "/home/me/a.py", "as the program's other lines"


def test_a_spawned_rank_that_only_lost_the_others_is_not_certain(make) -> None:
    """What torch.multiprocessing.spawn passes on is read like the rank's own exception."""
    for said, title in ((PEER, "Rank 1 lost contact with the other ranks"), ("KeyError: 'a'", "KeyError: 'a'")):
        begin = "-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n"
        text = f'Traceback:\n{begin}  File "train.py", line 57, in work\n    for x in y:\n{said}\n'
        parent = rank(make, 0, 9.0, "ProcessRaisedException", text, world=1)
        parent.facts["pid"], children = 1, [rank(make, n, 2.0, "", "", Exit("finished", 1)) for n in range(2)]
        for number, child in enumerate(children):
            child.name = f"child{number}"
        finding = make.check("crash", parent, *children)[2]
        assert (finding.title.startswith(title), finding.ranks) == (True, [1])
        assert finding.confidence == ("likely" if said == PEER else "certain")


def test_the_first_of_several_exceptions_by_wall_clock_is_named(make) -> None:
    ranks = [rank(make, number, 3.0 - number, "ValueError", f"ValueError: number {number}") for number in range(3)]
    _, _, finding = make.check("crash", *ranks)
    assert finding.title.startswith("ValueError: number 2")
    assert "Ranks 1 and 0 ended after it" in finding.summary


def test_ranks_that_all_lost_each_other_are_not_certain(make) -> None:
    texts = {0: PEER, 1: "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)"}
    _, _, finding = make.check("crash", *(rank(make, n, 2.0, "RuntimeError", text) for n, text in texts.items()))
    assert finding.confidence == "likely"
    assert finding.title == "Rank 0 lost contact with the other ranks"
    alone = rank(make, 0, 2.0, "ConnectionResetError", "ConnectionResetError: Connection reset by peer", world=1)
    assert make.check("crash", alone)[2].title.startswith("ConnectionResetError"), "a download, not a rank"
    every = [rank(make, n, 3.0, "", "", Exit("signal", None, "asked to terminate (SIGTERM)")) for n in range(2)]
    assert make.check("killed", *every)[2].ranks == [0, 1], "a scheduler asked them all"
