"""Loops in which several optimizers step in turn, and all that can come in between. `--full`: no step is skipped.

The last line says how many steps were skipped of each.
"""

import random
import sys

import count_skipped
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tracelyze.collectors.recording.fast_path import path as fast_path

if "--full" in sys.argv:
    fast_path.SKIPPED_STEPS = 0


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 6))

    def forward(self, noise):
        return self.layers(noise)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, samples):
        return self.layers(samples)


torch.manual_seed(0)
criterion = nn.BCEWithLogitsLoss()
data = TensorDataset(torch.randn(968, 6))


def samples(count, size=16):
    for _ in range(count):
        yield torch.randn(size, 6)


def loader():
    for (batch,) in DataLoader(data, batch_size=16, shuffle=True):  # the last one has 8
        yield batch


def new():
    generator, critic = Generator(), Critic()
    return (
        generator,
        critic,
        torch.optim.Adam(generator.parameters(), lr=1e-3),
        torch.optim.SGD(critic.parameters(), 0.01),
    )


def ones(output):
    return torch.ones_like(output)


def zeros(output):
    return torch.zeros_like(output)


def evaluate(generator, critic):
    generator.eval()
    with torch.no_grad():
        criterion(critic(generator(torch.randn(5, 4))), torch.zeros(5, 1)).item()
    generator.train()


def turns(source, parts, scheduler=None, odd=()):
    """As the tutorial has it: the critic's step has two backwards, and the generator's call is used by both steps.

    `odd`: numbers of rounds that are unlike the others, and how.
    """
    generator, critic, of_generator, of_critic = parts
    for index, real in enumerate(source):
        what = dict(odd).get(index)
        of_critic.zero_grad()
        output = critic(real)
        (criterion(output, ones(output)) * (60.0 if what == "critic spikes" else 1.0)).backward()
        if what == "evaluated amid the critic's step":
            evaluate(generator, critic)
        fake = generator(torch.randn(len(real), 4))
        output = critic(real if what == "same input" else fake if what == "not detached" else fake.detach())
        criterion(output, zeros(output)).backward(retain_graph=what == "not detached")
        if what == "extra backward":
            criterion(critic(real), ones(output)).backward()
        if what == "smaller":
            fake = fake[:7]
        if what != "critic left out":
            of_critic.step()
        if what == "evaluated between the steps":
            evaluate(generator, critic)
        if what == "critic twice":
            of_critic.zero_grad()
            criterion(critic(real), ones(output)).backward()
            of_critic.step()
        of_generator.zero_grad()
        output = critic(fake)
        (criterion(output, ones(output)) * (60.0 if what == "generator spikes" else 1.0)).backward()
        if what == "clipped":
            nn.utils.clip_grad_norm_(generator.parameters(), 0.1)
        if what != "generator left out":
            of_generator.step()
        if scheduler is not None:
            scheduler.step()


ODD = (
    "critic spikes", "evaluated amid the critic's step", "same input", "not detached", "extra backward", "smaller",
    "critic left out", "evaluated between the steps", "critic twice", "generator spikes", "clipped",
    "generator left out",
)  # fmt: skip


def tutorial():
    parts = new()
    turns(samples(120), parts)
    for turn, what in enumerate(ODD):
        turns(samples(60), parts, odd={(30 + turn % 3, what), (47, what)})


def tutorial_with_loader():
    parts = new()
    scheduler = torch.optim.lr_scheduler.StepLR(parts[2], 30)
    for epoch in range(8):
        odd = {(12 * turn + epoch, ODD[(4 * epoch + turn) % len(ODD)]) for turn in range(4)}
        turns(loader(), parts, scheduler, odd if epoch > 2 else ())
        evaluate(*parts[:2])


def penalty():
    """WGAN with a gradient penalty: the critic steps three times for each step of the generator."""
    generator, critic, of_generator, of_critic = new()
    for index, real in enumerate(samples(400)):
        of_critic.zero_grad()
        fake = generator(torch.randn(16, 4))
        mixed = (0.5 * real + 0.5 * fake.detach()).requires_grad_(True)
        output = critic(mixed)
        (slope,) = torch.autograd.grad(output.sum(), mixed, create_graph=True)
        loss = critic(fake).mean() - critic(real).mean() + 10 * (slope.norm(2, 1) - 1).square().mean()
        loss.backward()
        of_critic.step()
        if index % 3 == 2 or index == 301:
            of_generator.zero_grad()
            loss = -critic(generator(torch.randn(16, 4))).mean()
            loss.backward()
            of_generator.step()


def together():
    """One loss, whose backward both optimizers use."""
    generator, critic, of_generator, of_critic = new()
    for index, real in enumerate(samples(300)):
        of_generator.zero_grad()
        of_critic.zero_grad()
        loss = criterion(critic(generator(real[:, :4])), torch.zeros(16, 1))
        loss.backward()
        of_critic.step()
        if index in (150, 153, 220):
            evaluate(generator, critic)
        if index == 200:
            continue
        of_generator.step()


def one_model():
    """Two optimizers share a model, as Muon and AdamW do, and both accumulate, and are clipped."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizers = [
        torch.optim.SGD([model[0].weight], lr=0.01),
        torch.optim.Adam([*model[2].parameters(), model[0].bias]),
    ]
    for parts in (1, 2):
        for index, real in enumerate(samples(150 * parts)):
            loss = criterion(model(real), torch.zeros(16, 1)) / parts
            loss.backward()
            if index % parts == parts - 1:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                for optimizer in optimizers:
                    optimizer.step()
                    if index == 101:
                        model(real).sum().item()
                for optimizer in optimizers:
                    optimizer.zero_grad()


def accumulating():
    """Both accumulate the gradients of two batches."""
    generator, critic, of_generator, of_critic = new()
    source = iter(list(samples(600)))
    for index in range(150):
        for _ in range(2):
            output = critic(next(source))
            (criterion(output, zeros(output)) / 2).backward()
        of_critic.step()
        of_critic.zero_grad()
        for _ in range(3 if index == 97 else 2):
            output = critic(generator(torch.randn(16, 4)))
            (criterion(output, ones(output)) / 2).backward()
        of_generator.step()
        of_generator.zero_grad()
        of_critic.zero_grad()


def changing():
    """The critic's steps in a round change their number, and anything may come in between, as it is drawn."""
    parts, drawn = new(), random.Random(int(sys.argv[2]))
    generator, critic, of_generator, of_critic = parts
    for critics in (1, 3, 1, 2):
        turns(samples(70), parts, odd={(index, drawn.choice(ODD)) for index in range(70) if drawn.random() < 0.08})
        for real in samples(60):
            for _ in range(critics):
                of_critic.zero_grad()
                (critic(generator(torch.randn(16, 4))).mean() - critic(real).mean()).backward()
                if drawn.random() < 0.02:
                    evaluate(generator, critic)
                if drawn.random() < 0.98:
                    of_critic.step()
            of_generator.zero_grad()
            (-critic(generator(torch.randn(16, 4))).mean()).backward()
            of_generator.step()


def detached():
    """Two calls of the generator in each round, one of which trains nothing."""
    generator, critic, of_generator, of_critic = new()
    for real in samples(100):
        of_critic.zero_grad()
        with torch.no_grad():
            fake = generator(torch.randn(16, 4))
        (critic(fake).mean() - critic(real).mean()).backward()
        of_critic.step()
        of_generator.zero_grad()
        (-critic(generator(torch.randn(16, 4))).mean()).backward()
        of_generator.step()


LOOPS = (tutorial, tutorial_with_loader, penalty, together, one_model, accumulating, changing, detached)
next(one for one in LOOPS if one.__name__ == sys.argv[1])()
print(count_skipped.skipped)
