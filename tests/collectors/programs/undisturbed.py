"""Trains a little and does one thing with its process that a recording must not disturb: see the functions' names."""

import collections
import contextlib
import inspect
import io
import itertools
import os
import pickle
import random
import re
import signal
import sys
import threading
import time
import zipfile

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


def train(steps=30):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(torch.randn(8, 4)), torch.randn(8, 1)).backward()
        optimizer.step()


def closes_all_descriptors(folder):
    """As daemons do. The numbers are then given to files of its own."""
    train()
    time.sleep(0.8)  # rows have been written
    os.closerange(3, 1000)
    names = [f"{folder}/own{number}" for number in range(60)]
    files = [open(name, "wb", buffering=0) for name in names]  # noqa: SIM115
    for _ in range(3):
        train()
        time.sleep(0.6)
    for file in files:
        file.close()
    print("bytes", sum(os.path.getsize(name) for name in names))


def waits_for_a_signal(_):
    """Blocks SIGTERM in its own threads and takes it with sigwait."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    train()
    time.sleep(0.3)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    print("got", signal.sigwait({signal.SIGTERM}).name)


def counts_children(_):
    """Is told of every child that ends."""
    ended = []
    signal.signal(signal.SIGCHLD, lambda number, frame: ended.append(number))
    train()
    time.sleep(1.2)
    print("children", len(ended))


def logs_an_exception(_):
    """Handles an exception, and has excepthook print it."""
    train()
    seen = []
    previous = sys.excepthook
    try:
        raise ValueError("handled")
    except ValueError as error:
        sys.excepthook(ValueError, error, None)
    assert previous is sys.excepthook
    assert not seen
    print("went on")


def becomes_another_program(argument):
    """Replaces itself by the same script with another argument."""
    train()
    if argument == "first":
        os.execv(sys.executable, [sys.executable, __file__, "becomes_another_program", "second"])
    print("the second one")


def fails_to_become_one(_):
    train()
    try:
        os.execv("/no/such/program", ["x"])
    except FileNotFoundError as error:
        print("frames", error.__traceback__.tb_next)
    train()


class Long(torch.utils.data.IterableDataset):
    """Has more samples than it says."""

    def __iter__(self):
        return iter(range(5))

    def __len__(self):
        return 2


def is_warned(_):
    """Makes torch warn, at lines of its own and in its own module."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].register_full_backward_hook(lambda *args: None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scheduler.step()
    model(torch.randn(4, 2)).mean().backward()
    optimizer.step()
    scheduler.step(3)
    nn.functional.mse_loss(torch.randn(3, 1), torch.randn(3))
    nn.MSELoss()(torch.randn(3, 1), torch.randn(3))
    nn.functional.softmax(torch.randn(3, 2))
    nn.Softmax()(torch.randn(3, 2))
    for _ in torch.utils.data.DataLoader(Long()):
        pass
    torch.amp.GradScaler("cuda")


class Counting(TorchFunctionMode):
    """Counts every function of torch that is called within."""

    def __init__(self):
        super().__init__()
        self.seen = collections.Counter()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen[getattr(function, "__name__", str(function))] += 1
        return function(*args, **(kwargs or {}))


class Counted(torch.Tensor):
    """Counts every function that is called on it."""

    seen = collections.Counter()  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.seen[getattr(function, "__name__", str(function))] += 1
        return super().__torch_function__(function, types, args, kwargs or {})


def counts_functions(_):
    """Has a mode, and then a class of tensors, that see what is computed."""
    counting = Counting()
    with counting:
        classifies()
    classifies(Counted)
    print(sorted(counting.seen.items()), sorted(Counted.seen.items()))


def classifies(kind=torch.Tensor):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(60):
        inputs, labels = torch.randn(8, 4).as_subclass(kind), torch.randint(0, 3, (8,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def pickles_functions(_):
    train()
    functional, utils = nn.functional, nn.utils
    for function in (
        functional.cross_entropy, functional.mse_loss, functional.dropout, torch.autograd.backward,
        utils.clip_grad_norm_, utils.clip_grad_value_, nn.Module.__call__, nn.Module.state_dict,
        nn.Module.load_state_dict, torch.optim.lr_scheduler.StepLR.step, torch.amp.GradScaler.scale,
        torch.utils.data.DataLoader.__iter__, os._exit, os.execv,
    ):  # fmt: skip
        assert pickle.loads(pickle.dumps(function)) is function, function
    pickle.loads(pickle.dumps(random.seed))(3)  # takes its generator along, as an initializer of a pool does
    print("pickled")


def joins_all_threads(_):
    """As a program that waits for its own workers, whatever they are called."""
    train()
    time.sleep(0.3)
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join()
    print("joined")


def clips_iterators(_):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(30):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        given = filter(lambda one: one.requires_grad, model.parameters())
        if step % 3 == 0:
            nn.utils.clip_grad_norm_(given, 0.1)
        elif step % 3 == 1:
            nn.utils.clip_grad_value_(itertools.chain(given), 0.01)
        else:
            nn.utils.clip_grad_norm_(parameters=given, max_norm=0.1)
        optimizer.step()
    print(model.weight.sum().item())


def trains_fake_tensors(_):
    """As an estimate of the memory that a model needs: its tensors have no memory to read."""
    train()
    with FakeTensorMode():
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    print("estimated", tuple(model.weight.shape))


def stops_the_clock(_):
    """As tests of a program do that depends on the date."""
    train(5)
    time.perf_counter = time.monotonic = time.time = time.sleep = None
    train()
    print("trained")


def loses_its_reader(_):
    """Nobody reads its stderr any more, and SIGPIPE would end it, as it ends tools for the shell."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    train()
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, sys.stderr.fileno())
    print("trained")


class CountsOperations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = collections.Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen[str(function)] += 1
        return function(*args, **(kwargs or {}))


def counts_operations(_):
    """Has a mode that sees every operation. The loss is written out, and crosses its shapes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with CountsOperations() as counting:
        for _ in range(60):
            inputs = torch.randn(8, 4)
            optimizer.zero_grad()
            ((model(inputs) - inputs.sum(1)) ** 2).mean().backward()
            optimizer.step()
    print(sorted(counting.seen.items()))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, given):
        context.name, context.variable = "mine", 5
        return given * 2

    @staticmethod
    def backward(context, gradient):
        return gradient * 2


def passes_iterators(_):
    """Gives backward its losses as an iterator, and has functions that keep a `name` of their own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(40):
        inputs = torch.randn(8, 4)
        losses = [Doubled.apply(model(inputs)).square().mean(), model(inputs).abs().mean()]
        optimizer.zero_grad()
        torch.autograd.backward(iter(losses))
        optimizer.step()
        Doubled.apply(nn.functional.mse_loss(Doubled.apply(model(inputs)), inputs[:, :1])).backward()
        optimizer.step()
    print([parameter.sum().item() for parameter in model.parameters()])


class NotComparable:
    def __eq__(self, other):
        raise RuntimeError("nobody is to compare")

    __hash__ = object.__hash__


class Frozen(NotComparable, nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, given):
        return self.norm(self.layer(given))


class Sgd(NotComparable, torch.optim.SGD):
    pass


class Schedule(NotComparable, torch.optim.lr_scheduler.StepLR):
    pass


class Loader(NotComparable, torch.utils.data.DataLoader):
    pass


def compares_nothing(_):
    """Has modules, optimizers, schedulers and loaders whose `==` raises."""
    torch.manual_seed(0)
    model = Frozen().train().eval().train()
    groups = [{"params": [one], "lr": 0.01 * index} for index, one in enumerate(model.parameters())]
    optimizer = Sgd(groups, lr=0.01)
    schedule, loader = Schedule(optimizer, 5), Loader(torch.randn(16, 4), 4)
    for _ in range(8):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        schedule.step()
        model.train()
        torch.save(model.state_dict(), io.BytesIO())
    print([parameter.sum().item() for parameter in model.parameters()])


class Asked(dict):
    count = 0

    def keys(self):
        Asked.count += 1
        raise OSError("nobody is to ask")

    def __reduce__(self):
        return Asked, ()


class Anything:
    asked = 0

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        Anything.asked += 1
        return lambda *args, **kwargs: iter(())


class CountedPath(os.PathLike):
    asked = 0

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        CountedPath.asked += 1
        return self.path


def saves_odd_objects(folder):
    """Writes files that hold more than weights: nobody but torch.save looks into it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 2))
    turn = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).abs().mean().backward()
        optimizer.step()
        torch.save({"model": model.state_dict(), "more": [Asked(), Anything()], "turn": turn}, io.BytesIO())
        torch.save(model.state_dict(), CountedPath(folder + "/weights.pt"))
        model.load_state_dict(torch.load(folder + "/weights.pt", map_location="cpu"))
    scripted = torch.jit.script(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(scripted.parameters(), lr=0.01)
    for _ in range(5):
        scripted(torch.randn(8, 4)).mean().backward()
        optimizer.step()
    print(Asked.count, Anything.asked, CountedPath.asked, model[0].weight.sum().item())


def computes_its_weights(_):
    """Weights that are computed as they are read, by code that goes a step on each time."""
    torch.manual_seed(0)
    norm = nn.utils.parametrizations.spectral_norm
    model = nn.Sequential(norm(nn.Embedding(6, 4)), norm(nn.Linear(4, 4)), nn.utils.spectral_norm(nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(60):
        optimizer.zero_grad()
        model(torch.arange(6)).square().sum().backward()
        optimizer.step()
        if step == 30:
            nn.Embedding(8, 4)
    print([(name, value.double().sum().item()) for name, value in model.state_dict().items()])


def has_a_reader_that_does_not_read(_):
    """Would wait for ever if it wrote to its stderr, a pipe that is full."""
    global reader  # open to the end of the program
    train()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    os.dup2(writer, 2)
    print("to the end")


def asks_functions_what_they_are(_):
    """Prints what inspect and the attributes say of torch's functions, and what calls without arguments raise."""
    train()
    functional, schedulers = nn.functional, torch.optim.lr_scheduler
    homes = [functional, nn.init, nn.utils, nn.Module, nn.Embedding, torch.utils.data.DataLoader, torch.amp.GradScaler]
    homes += [torch.optim.Optimizer, torch.autograd, schedulers.StepLR, schedulers.LRScheduler, torch.serialization]
    for home in homes:
        for name, found in sorted(vars(home).items()):
            if inspect.isfunction(found):
                print(home.__name__, name, inspect.getfullargspec(found), inspect.signature(found))
                if home is functional or home is nn.init or home is torch.serialization:
                    print(found.__defaults__, found.__kwdefaults__)
    for call in (nn.Module.__call__, nn.Module.train, nn.Module.state_dict, functional.cross_entropy, torch.save):
        try:
            call()
        except TypeError as error:
            print(error)
    ones = torch.ones(2, 4, 3, 3, 3)
    for name in ("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d"):
        torch.manual_seed(0)
        print(name, getattr(functional, name)(ones[0, 0] if name == "dropout1d" else ones).sum().item())


def saves_scripts(folder):
    """Prints which sources a file of TorchScript names, and what an error in it says."""
    train()
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.BatchNorm1d(8))
    file = os.path.join(folder, "script.pt")
    torch.jit.script(model).save(file)
    with zipfile.ZipFile(file) as archive:
        found = [archive.read(name) for name in archive.namelist() if name.endswith(".debug_pkl")]
    print(len(found), sorted(set(re.findall(rb"/[^\n]*?/nn/[a-z/]+\.py|[^\n/]*bootstrap[^\n]*", b"\n".join(found)))))
    model[1].p = 2.0
    scripted = torch.jit.script(model)
    try:
        scripted(torch.ones(2, 4))
    except Exception as error:
        print(error)
    print(torch.jit.script(nn.functional.cross_entropy).code)


def describes_all_functions(_):
    """Prints what can be asked of torch's functions, and of those of Python that the collector stands in front of, and
    whether pickle finds each."""
    train()
    described = {}
    for home in (
        torch, torch.amp.grad_scaler, torch.autograd, nn, nn.functional, nn.init, nn.modules.module, nn.modules.sparse,
        nn.utils, nn.utils.clip_grad, torch.optim.lr_scheduler, sys.modules["torch.optim.optimizer"],
        torch.serialization, torch.utils.data.dataloader, torch.utils.data._utils.fetch, os, random,
        sys.modules["multiprocessing.process"],
    ):  # fmt: skip
        for name, found in list(vars(home).items()):
            owned = vars(found).items() if isinstance(found, type) and found.__module__ == home.__name__ else ()
            for path, one in [(name, found), *((f"{name}.{inner}", value) for inner, value in owned)]:
                if callable(one) and hasattr(one, "__name__") and not isinstance(one, type):
                    described[f"{home.__name__}:{path}"] = _description(one)
    for path, description in sorted(described.items()):
        print(path, re.sub("0x[0-9a-f]+", "0x", description))


def _description(function):
    said = [
        getattr(function, name, None)
        for name in ("__name__", "__qualname__", "__module__", "__doc__", "__defaults__", "__kwdefaults__")
    ]
    said.append(getattr(function, "__annotations__", None) or None)
    loaded = lambda one: pickle.loads(pickle.dumps(one)) is one  # noqa: E731
    for ask in (inspect.signature, inspect.getfullargspec, inspect.iscoroutinefunction, loaded):
        try:
            said.append(ask(function))
        except Exception as error:
            said.append(type(error).__name__)
    return repr(said)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else "")
