"""Phases of a training that ask for different signals at different times. `--never-paused`: no signal ever pauses.

Says how many signals listened to an adversarial step that may pause, on average.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tracelyze.collectors.hooks.process_recorders import recorder

if "--never-paused" in sys.argv:
    from tracelyze.collectors.signals.signal import Signal

    Signal.pause = lambda *_: None

torch.manual_seed(0)
generator = torch.Generator().manual_seed(1)
data = TensorDataset(torch.randn(160, 6), torch.randint(0, 3, (160,)))
loader = DataLoader(data, batch_size=16, shuffle=True, generator=generator)
model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 3))
critic = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
other = torch.optim.Adam(critic.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()


def train(passes: int, clip: bool = False, spike: int = -1, clear: bool = True, micro: int = 1) -> None:
    for number in range(passes):
        model.train()
        for index, (x, y) in enumerate(loader):
            if clear and index % micro == 0:
                optimizer.zero_grad()
            factor = 50.0 if (number, index) == (1, spike) else 1.0
            loss = criterion(model(x), y) * factor / micro
            loss.backward()
            if index % micro == micro - 1:
                if clip:
                    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
        model.eval()
        with torch.no_grad():
            sum(nn.functional.cross_entropy(model(x), y).item() for x, y in loader)


def alternate(steps: int) -> None:
    for _ in range(steps):
        x = torch.randn(16, 6)
        for net, own in ((critic, other), (model, optimizer)):
            own.zero_grad()
            net(x).square().mean().backward()
            own.step()


def adversarial(steps: int, spike: int, undetached: int) -> None:
    """Two steps of the critic for each of the generator, whose loss runs through both."""
    generator, listening = nn.Linear(4, 6), 0
    of_generator = torch.optim.Adam([{"params": [generator.weight]}, {"params": [generator.bias], "lr": 0.1}], lr=0.01)
    for step in range(steps):
        for _ in range(2):
            fake = generator(torch.randn(16, 4))
            other.zero_grad()
            critic(torch.randn(16, 6)).square().mean().backward()
            (critic(fake if step >= undetached else fake.detach()) - 1.0).square().mean().backward()
            other.step()
        if step < undetached:
            of_generator.zero_grad()
        (critic(generator(torch.randn(16, 4))).square().mean() * (50.0 if step == spike else 1.0)).backward()
        listening += len(recorder().dispatcher.in_the_way())
        of_generator.step()
    print(listening / steps)


train(12)
train(3, spike=4)
train(3, clip=True)
alternate(30)
train(4, micro=5)
adversarial(150, spike=70, undetached=120)
train(3, clear=False)
