"""Loops that call models without autograd at every step, or nearly, and several trainings: the first argument says
which. `--full`: no step is skipped. The last line says how many steps were skipped.
"""

import copy
import sys

import count_skipped
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tracelyze.collectors.recording.fast_path import path as fast_path

if "--full" in sys.argv:
    fast_path.SKIPPED_STEPS = 0
torch.manual_seed(0)
chance = torch.Generator().manual_seed(1)


def net(outputs=3):
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, outputs))


model = net()
other = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x, y = torch.randn(16, 6), torch.randint(0, 3, (16,))
held = torch.randn(40, 6), torch.randint(0, 3, (40,))


def evaluate():
    model.eval()
    with torch.no_grad():
        F.cross_entropy(model(held[0]), held[1]).item()
    model.train()


def update(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def policy(steps=400):
    """Acts now and then before a step, several times in a row at times; its values are learnt from a target network."""
    for index in range(steps):
        for _ in range(int(torch.randint(0, 4, (), generator=chance))):
            with torch.no_grad():
                model(torch.randn(1, 6)).argmax().item()
        chosen = model(torch.randn(16, 6)).gather(1, y[:, None])
        with torch.no_grad():
            wanted = other(torch.randn(16, 6)).amax(1, keepdim=True)
        update(F.smooth_l1_loss(chosen, 0.9 * wanted))
        if index % 100 == 99:
            other.load_state_dict(model.state_dict())
            evaluate()


def teacher(passes=40):
    """A teacher sees the batches of a loader first; the last one of each pass is smaller."""
    for number in range(passes):
        for given, labels in DataLoader(TensorDataset(torch.randn(184, 6), torch.randint(0, 3, (184,))), 16):
            with torch.inference_mode():
                wanted = other(given)
            answer = model(given)
            update(F.cross_entropy(answer, labels) + F.mse_loss(answer, wanted.clone()))
        if number % 10 == 9:
            evaluate()


def average(steps=400):
    """A running average of the weights is a teacher, and changes with each step; now and then its mode is wrong."""
    for index in range(steps):
        answer = model(x)
        other.train(index % 90 == 70)
        with torch.no_grad():
            wanted = other(x)
        update(F.cross_entropy(answer, y) + F.mse_loss(answer, wanted))
        with torch.no_grad():
            for mean, weight in zip(other.parameters(), model.parameters(), strict=True):
                mean.lerp_(weight, 0.01)
        if index % 130 == 129:  # another line gives it as much
            with torch.no_grad():
                other(x)


def abandoned(steps=450):
    """A step of several begins with a call without autograd, and is given up."""
    for index in range(steps):
        with torch.no_grad():
            wanted = other(x)
        loss = F.mse_loss(model(x), wanted)
        if index % 200 != 199:
            update(loss)


def trained(steps=160):
    """A training of its own, which clips gradients, with a batch of a loader at each step."""
    own = net()
    stepped = torch.optim.Adam(own.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(96, 6), torch.randint(0, 3, (96,))), 16)
    for index in range(steps):
        if index % 6 == 0:
            batches = iter(loader)
        given, labels = next(batches)
        stepped.zero_grad()
        F.cross_entropy(own(given), labels).backward()
        nn.utils.clip_grad_norm_(own.parameters(), 0.5)
        stepped.step()
        yield
    own.eval()
    with torch.no_grad():
        F.cross_entropy(own(held[0]), held[1]).item()


def sequence():
    """Trainings one after the other, each with a model and an optimizer of its own."""
    for _ in range(3):
        list(trained())


def turns():
    """Trainings that take turns, five steps each."""
    several = [trained(), trained()]
    for _ in range(32):
        for one in several:
            for _ in range(5):
                next(one, None)


def unused(steps=450):
    """A part of what the optimizer holds is not used, and has no gradients."""
    optimizer.add_param_group({"params": list(nn.Linear(6, 3).parameters())})
    for _ in range(steps):
        update(F.cross_entropy(model(x), y))


def cleared(steps=450):
    """Gradients are cleared between the micro-batches of a step: most are lost."""
    for _ in range(steps):
        for part in range(2):
            optimizer.zero_grad()
            F.cross_entropy(model(x[part::2]), y[part::2]).backward()
        optimizer.step()


def twice(steps=300):
    """The model is called with two views of a batch, and a head with what comes of it."""
    head = nn.Linear(3, 3)
    optimizer.add_param_group({"params": list(head.parameters())})
    for index in range(steps):
        one, two = head(model(x)), head(model(x + 0.1 * torch.randn(16, 6)))
        update(F.mse_loss(one, two) + F.cross_entropy(one, y))
        if index % 100 == 99:
            with torch.no_grad():
                model(torch.randn(5, 6))


def values(steps=240):
    """A policy that acts now and then and its values step in turn; the values are learnt from a target network."""
    critic = net(1)
    target = copy.deepcopy(critic).requires_grad_(False)
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.01)
    for index in range(steps):
        for _ in range(int(torch.randint(0, 3, (), generator=chance))):
            with torch.no_grad():
                model(torch.randn(1, 6)).argmax().item()
        state, following = torch.randn(16, 6), torch.randn(16, 6)
        with torch.no_grad():
            wanted = target(following + model(following).mean())
        of_critic.zero_grad()
        F.mse_loss(critic(state), wanted).backward()
        of_critic.step()
        state = state[: 8 if index == 150 else 16]  # A round goes on otherwise than it began.
        update(-critic(state + model(state).mean()).mean())
        if index % 100 == 99:
            target.load_state_dict(critic.state_dict())
            evaluate()


def generated(steps=240):
    """What a generator makes without autograd is given to its critic."""
    critic = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 1))
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.01)
    for index in range(steps):
        of_critic.zero_grad()
        real = critic(torch.randn(16, 3))
        with torch.no_grad():
            fake = model(torch.randn(16 - index // 170, 6))
        (critic(fake).mean() - real.mean()).backward()
        of_critic.step()
        update(-critic(model(torch.randn(16, 6))).mean())


LOOPS = [policy, teacher, average, abandoned, sequence, turns, unused, cleared, twice, values, generated]
{one.__name__: one for one in LOOPS}[sys.argv[1]]()
print(count_skipped.skipped)
