"""Training loops in many idioms, one after the other (or those named as arguments). Prints of each a digest of
everything that a collector could have changed: weights, buffers, and the states of the random number generators."""

import copy
import hashlib
import random
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

STEPS = 24


def data(samples=96, features=10, classes=3):
    x = torch.randn(samples, features)
    return x, (x[:, :classes].argmax(1))


def net():
    return nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))


def batches(x, y, size=16):
    while True:
        for start in range(0, len(x), size):
            yield x[start : start + size], y[start : start + size]


def simple(clear, model=None, accumulate=1):
    x, y = data()
    model = model or net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    source = batches(x, y)
    for _ in range(STEPS):
        clear(model, optimizer)
        for _ in range(accumulate):
            inputs, targets = next(source)
            (F.cross_entropy(model(inputs), targets) / accumulate).backward()
        optimizer.step()
    return [model]


def plain():
    return simple(lambda model, optimizer: optimizer.zero_grad())


def zero_in_place():
    return simple(lambda model, optimizer: optimizer.zero_grad(set_to_none=False))


def zero_by_model():
    return simple(lambda model, optimizer: model.zero_grad())


def zero_through_data():
    def clear(model, optimizer):
        for p in model.parameters():
            if p.grad is not None:
                p.grad.data.zero_()

    return simple(clear)


def zero_by_new_tensor():
    def clear(model, optimizer):
        for p in model.parameters():
            p.grad = torch.zeros_like(p)

    return simple(clear)


def never_cleared():
    return simple(lambda model, optimizer: None)


def accumulation():
    return simple(lambda model, optimizer: optimizer.zero_grad(), accumulate=4)


def accumulation_never_cleared():
    return simple(lambda model, optimizer: None, accumulate=4)


def half_cleared():
    return simple(lambda model, optimizer: model[0].zero_grad())


def cleared_before_step():
    x, y = data()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        F.cross_entropy(model(x), y).backward()
        optimizer.zero_grad()
        optimizer.step()
    return [model]


def scheduled_with_clip():
    x, y = data()
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        loss = nn.CrossEntropyLoss()(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
    return [model]


def validated():
    x, y = data()
    train = DataLoader(TensorDataset(x[:64], y[:64]), batch_size=16, shuffle=True)
    valid = DataLoader(TensorDataset(x[64:], y[64:]), batch_size=16)
    model, criterion = net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(6):
        model.train()
        for inputs, targets in train:
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for inputs, targets in valid:
                criterion(model(inputs), targets)
    return [model]


def workers():
    x, y = data()
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, num_workers=2)
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    return [model]


def fp16_scaled():
    x, y = data()
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=8)
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        if step == 5:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return [model]


def fp16_fused():
    x, y = data()
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=8)
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        if step == 5:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return [model]


def bf16():
    x, y = data()
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return [model]


def lbfgs():
    x, y = data()
    model = nn.Linear(10, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5)

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)
    return [model]


def gan():
    real = torch.randn(64, 4)
    generator, critic = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4)), nn.Linear(4, 1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    for _ in range(STEPS):
        fake = generator(torch.randn(64, 2))
        of_critic.zero_grad()
        criterion(critic(real), torch.ones(64, 1)).backward()
        criterion(critic(fake.detach()), torch.zeros(64, 1)).backward()
        of_critic.step()
        of_generator.zero_grad()
        criterion(critic(fake), torch.ones(64, 1)).backward()
        of_generator.step()
    return [generator, critic]


def gan_generator_never_cleared():
    real = torch.randn(64, 4)
    generator, critic = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4)), nn.Linear(4, 1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(STEPS):
        fake = generator(torch.randn(64, 2))
        of_critic.zero_grad()
        (critic(fake.detach()).mean() - critic(real).mean()).backward()
        of_critic.step()
        (-critic(fake).mean()).backward()
        of_generator.step()
    return [generator, critic]


def gradient_penalty():
    x = torch.randn(64, 4)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        inputs = x.clone().requires_grad_(True)
        output = model(inputs)
        (slope,) = torch.autograd.grad(output.sum(), inputs, create_graph=True)
        optimizer.zero_grad()
        (output.mean() + (slope.norm(dim=1) - 1).square().mean()).backward()
        optimizer.step()
    return [model]


def sparse():
    table, head = nn.Embedding(50, 8, sparse=True), nn.Linear(8, 3)
    of_table = torch.optim.SparseAdam(table.parameters(), lr=0.01)
    of_head = torch.optim.Adam(head.parameters(), lr=0.01)
    words, y = torch.randint(0, 50, (64,)), torch.randint(0, 3, (64,))
    for _ in range(STEPS):
        of_table.zero_grad()
        of_head.zero_grad()
        F.cross_entropy(head(table(words)), y).backward()
        of_table.step()
        of_head.step()
    return [table, head]


def teacher():
    x, _ = data()
    old = net().eval()
    model = net()
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        with torch.no_grad():
            target = old(x).softmax(1)
            average(x)
        optimizer.zero_grad()
        F.kl_div(model(x).log_softmax(1), target, reduction="batchmean").backward()
        optimizer.step()
    return [model]


def reentrant():
    x, y = data()
    first, last = nn.Linear(10, 16), nn.Linear(16, 3)
    optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.05)
    for _ in range(STEPS):
        hidden = checkpoint(first, x.clone().requires_grad_(True), use_reentrant=True)
        optimizer.zero_grad()
        F.cross_entropy(last(checkpoint(torch.tanh, hidden, use_reentrant=True)), y).backward()
        optimizer.step()
    return [first, last]


def compiled():
    x, y = data()
    model = net()
    fast = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(fast(x), y).backward()
        optimizer.step()
    return [model]


def by_hand():
    x, y = data()
    w = torch.zeros(10, 3, requires_grad=True)
    for _ in range(STEPS):
        F.cross_entropy(x @ w, y).backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
    holder = nn.Linear(10, 3)
    with torch.no_grad():
        holder.weight.copy_(w.T)
    return [holder]


def kept_losses():
    x, y = data()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    history = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        history.append(loss)
    return [model]


def recurrent():
    model, head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 1)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=0.01)
    state = None
    for _ in range(STEPS):
        output, state = model(torch.randn(8, 5, 4), state)
        state = tuple(part.detach() for part in state)
        optimizer.zero_grad()
        head(output).square().mean().backward()
        optimizer.step()
    return [model, head]


def adamw_foreach():
    return with_optimizer(lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True))


def adamw_fused():
    return with_optimizer(lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True))


def differentiable():
    """A step that autograd can follow: the parameters are tensors with a history."""
    x, y = data()
    model = net()
    leaves = {name: p.detach().clone() for name, p in model.named_parameters()}
    start = [p.requires_grad_(True) for p in leaves.values()]
    for _ in range(STEPS):
        copies = [p.clone() for p in start]
        for p in copies:
            p.retain_grad()
        optimizer = torch.optim.SGD(copies, lr=0.05, differentiable=True)
        F.cross_entropy(torch.func.functional_call(model, dict(zip(leaves, copies, strict=True)), (x,)), y).backward()
        optimizer.step()
        start = [p.detach().clone().requires_grad_(True) for p in copies]
    model.load_state_dict(dict(zip(leaves, start, strict=True)), strict=False)
    return [model]


def tensor_rate():
    return with_optimizer(lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(0.01)))


def with_optimizer(make):
    x, y = data()
    model = net()
    optimizer = make(model.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return [model]


def inside_backward():
    x, y = data()
    model = net()
    optimizers = {p: torch.optim.SGD([p], lr=0.05) for p in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    for _ in range(STEPS):
        F.cross_entropy(model(x), y).backward()
    return [model]


def compiled_step():
    x, y = data()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    fast = torch.compile(optimizer.step, backend="eager")
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        fast()
    return [model]


class ScheduleFree:
    """An optimizer that is no torch class: it averages its iterates instead of following a schedule."""

    def __init__(self, parameters, lr):
        self.parameters, self.lr, self.count = list(parameters), lr, 0
        self.base = [p.detach().clone() for p in self.parameters]

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self):
        self.count += 1
        for p, base in zip(self.parameters, self.base, strict=True):
            base -= self.lr * p.grad
            p.lerp_(base, 1 / (self.count + 1))


def schedule_free():
    return with_optimizer(lambda parameters: ScheduleFree(parameters, 0.05))


def side_by_side():
    x, y = data()
    one, two = net(), nn.Linear(10, 1)
    of_one, of_two = torch.optim.AdamW(one.parameters(), lr=1e-3), torch.optim.SGD(two.parameters(), lr=1e-3)
    for _ in range(STEPS):
        first, second = F.cross_entropy(one(x), y), two(x).square().mean()
        of_one.zero_grad()
        of_two.zero_grad()
        first.backward()
        second.backward()
        nn.utils.clip_grad_norm_(one.parameters(), 1.0)
        nn.utils.clip_grad_norm_(two.parameters(), 5.0)
        of_one.step()
        of_two.step()
    return [one, two]


def discarded():
    x, y = data()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        for _ in range(4):
            optimizer.zero_grad()
            (F.cross_entropy(model(x), y) / 4).backward()
        optimizer.step()
        optimizer.zero_grad()  # what the backward finds then is as new as what the step consumed
    return [model]


def discarded_in_place():
    x, y = data()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        for _ in range(4):
            optimizer.zero_grad(set_to_none=False)
            (F.cross_entropy(model(x), y) / 4).backward()
        optimizer.step()
    return [model]


def digest(modules):
    sha = hashlib.sha256()
    for module in modules:
        for name, tensor in sorted(module.state_dict().items()):
            sha.update(name.encode())
            sha.update(tensor.detach().contiguous().numpy().tobytes())
    sha.update(torch.get_rng_state().numpy().tobytes())
    sha.update(repr(random.getstate()).encode())
    sha.update(repr(np.random.get_state()).encode())
    return sha.hexdigest()


LOOPS = {
    name: loop
    for name, loop in list(globals().items())
    if callable(loop) and getattr(loop, "__module__", "") == "__main__" and name not in
    ("data", "net", "batches", "simple", "digest", "with_optimizer", "ScheduleFree")
}  # fmt: skip

if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or LOOPS:
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        print(name, digest(LOOPS[name]()))
