"""Handlers and hooks from before and after `import torch`, children of every kind, a warning: all of it printed."""

import atexit
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time


def say(*words):
    print(*words, flush=True)


def own_hook(kind, error, trace):
    frames = []
    while trace is not None:
        frames.append(os.path.basename(trace.tb_frame.f_code.co_filename))
        trace = trace.tb_next
    say("own hook:", kind.__name__, frames[0], "hooks.py" in frames)


def handler(number, _frame):
    say("handled", signal.Signals(number).name)


if __name__ == "__main__":
    atexit.register(say, "registered before torch")
    sys.excepthook = own_hook
    threading.excepthook = lambda args: say("own thread hook:", args.exc_type.__name__)
    signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGTERM, handler)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset, get_worker_info  # noqa: E402

torch.set_num_threads(1)


class Mapped(Dataset):
    """Samples in a file that is mapped into memory. A worker adds what it sees of the collector to each."""

    def __init__(self, path):
        self.path, self.data = path, None

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if self.data is None:
            self.data = torch.from_file(self.path, shared=False, size=64)
        seen = 0
        if get_worker_info() is not None:
            threads = sys.modules.get("tracelyze.collectors.system.threads")
            seen = len(threads.idents if threads else ()) + ("pyarrow" in sys.modules and not FORKED)
        return self.data[index], seen


FORKED = False
MODELS = []  # which live until the process ends, when the last update is seen


def train(steps=10, seed=0):
    torch.manual_seed(seed)
    model = nn.Linear(4, 2)
    MODELS.append(model)
    for _ in range(steps):  # by hand: the first optimizer of a process imports torch._dynamo, which takes seconds
        model(torch.randn(8, 4)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
    return sum(p.double().sum().item() for p in model.parameters()).hex()


def children():
    for child_trains in (True, False):
        child = os.fork()
        if child == 0:
            if child_trains:
                train(15)
            os._exit(3)
        say("forked child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    read, write = os.pipe()
    if os.fork() == 0:  # a daemon: its parent ends before it trains, and this process does not wait for it
        if os.fork() == 0:
            os.setsid()
            time.sleep(0.2)
            os.write(write, train(25, 3).encode())
            os._exit(0)
        os._exit(0)
    os.wait()
    os.close(write)
    say("daemon", os.read(read, 100).decode())


def loaders(path):
    global FORKED
    for method in ("fork", "spawn", "forkserver"):
        FORKED = method == "fork"
        torch.manual_seed(1)
        loader = DataLoader(Mapped(path), batch_size=8, shuffle=True, num_workers=1, multiprocessing_context=method)
        batches = [(values.sum().item(), int(seen.max())) for values, seen in loader]
        say(method, [value for value, _ in batches], "collector in worker:", sum(seen for _, seen in batches))


if __name__ == "__main__":
    atexit.register(say, "registered after torch")
    say(train())
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)
    children()
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/data", "wb") as file:
        file.write(torch.arange(64, dtype=torch.float32).numpy().tobytes())
        file.flush()
        loaders(file.name)
    F.mse_loss(torch.zeros(3, 1), torch.zeros(3))  # warns, and names this line
    failing = threading.Thread(target=lambda: 1 / 0)
    failing.start()
    failing.join()
    passing = "QueueFeeder"  # threads of queues, which end when they get to it
    threads = [thread.name for thread in threading.enumerate() if not thread.name.startswith(passing)]
    say(multiprocessing.active_children(), threads)
    nn.Linear(4, 2)(torch.randn(3, 3))
