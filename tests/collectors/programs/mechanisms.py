"""Losses, parameters, schedulers and scalers whose use is known; prints a sum of weights after each part."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

warnings.simplefilter("ignore")
torch.manual_seed(7)
torch.set_num_threads(1)


def steps(model, loss_of, count=40, optimizer=None, scheduler=None, **backward):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(count):
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward(**backward)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return sum(p.double().sum().item() for p in model.parameters())


def x():
    return torch.randn(12, 6)


def labels():
    return torch.randint(0, 4, (12,))


def net():
    return nn.Linear(6, 4)


def functional_and_module():
    criterion = nn.CrossEntropyLoss()
    return steps(net(), lambda m: criterion(m(x()), labels()) + F.nll_loss(F.log_softmax(m(x()), 1), labels()))


def softmaxes():
    return steps(net(), lambda m: F.cross_entropy(m(x()).softmax(-1).view(12, 4).clamp(1e-6), labels()))


def compiled():
    model = torch.compile(nn.Sequential(net(), nn.Softmax(1)), backend="aot_eager")
    return steps(model, lambda m: F.cross_entropy(m(x()), labels()))


def transforms():
    def loss_of(model):
        def one(row, label):
            return F.cross_entropy(model(row), label)

        whole = torch.func.vmap(one)(x(), labels()).mean()
        with FlopCounterMode(display=False) as flops:
            counted = F.mse_loss(model(x()), torch.zeros(12, 4))
        assert flops.get_total_flops() == 2 * 12 * 6 * 4
        again = checkpoint(lambda rows: F.l1_loss(model(rows), torch.ones(12, 4)), x(), use_reentrant=False)
        torch.func.grad(lambda weight: F.smooth_l1_loss(x() @ weight, torch.zeros(12)))(torch.ones(6, 1))
        return whole + counted + again + F.huber_loss(input=model(x()), target=torch.tensor(1.0))

    return steps(net(), loss_of)


def left_out():
    held, free = net(), nn.Linear(6, 6)
    return steps(held, lambda m: F.cross_entropy(m(free(x())), labels()), count=60)


def unused():
    model = nn.ModuleDict({"used": net(), "spare": nn.Linear(3, 3)})
    return steps(model, lambda m: F.cross_entropy(m["used"](x()), labels()))


def scheduled():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    parts = [torch.optim.lr_scheduler.ConstantLR(optimizer), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, parts, milestones=[10])
    return steps(model, lambda m: F.cross_entropy(m(x()), labels()), optimizer=optimizer, scheduler=scheduler)


def retained():
    with torch.autograd.detect_anomaly():
        return steps(net(), lambda m: F.cross_entropy(m(x()), labels()), retain_graph=True)


def scaled():
    model, scaler = net(), torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for index in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x()), labels())
        (scaler.scale(loss) if index < 20 else loss).backward()
        if index < 10:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    return sum(p.double().sum().item() for p in model.parameters())


for part in (
    functional_and_module,
    softmaxes,
    compiled,
    transforms,
    left_out,
    unused,
    scheduled,
    retained,
    scaled,
):
    print(part.__name__, part().hex())
