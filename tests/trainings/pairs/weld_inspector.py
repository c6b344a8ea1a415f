"""Grade welds from small thermal images, by a function for each phase, with a backbone that is meant to stay as it is.

Faults: `own-statistics` normalises with batch statistics in validation too, and stores them; `train-never-called` relies
on the constructor for a train() that freezes the backbone; `tests-a-new-model` builds the network again for the last
test and does not load its weights.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)


class Grader(nn.Module):
    def __init__(self, own_statistics=False):
        super().__init__()
        self.backbone = Backbone()
        self.own_statistics = own_statistics
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("variance", torch.ones(8))
        self.mix = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8 * 16, 3)

    def forward(self, x):
        x = self.mix(self.backbone(x))
        training = True if self.own_statistics else self.training
        x = F.relu(F.batch_norm(x, self.mean, self.variance, training=training))
        return self.head(F.max_pool2d(x, 1).flatten(1))


class FrozenBackbone(Grader):
    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        for parameter in self.backbone.parameters():
            parameter.requires_grad_(False)
        return self


def draw(count, generator):
    images = torch.randn(count, 1, 8, 8, generator=generator)
    grade = torch.randint(0, 3, (count,), generator=generator)
    images[:, :, 2:6, 2:6] += 0.9 * grade[:, None, None, None]
    return images, grade


def train_one_epoch(model, optimizer, images, grade):
    for pick in torch.randperm(len(images)).split(40):
        loss = F.cross_entropy(model(images[pick]), grade[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def validate(model, images, grade):
    losses = [F.cross_entropy(model(images[pick]), grade[pick]) for pick in torch.arange(len(images)).split(50)]
    return torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser()
    faults = ["own-statistics", "train-never-called", "tests-a-new-model"]
    parser.add_argument("--fault", default="", choices=["", *faults])
    args = parser.parse_args()
    torch.manual_seed(31)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(4)
    seen, held_out = draw(1200, generator), draw(200, generator)
    model = FrozenBackbone() if args.fault == "train-never-called" else Grader(args.fault == "own-statistics")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(6):
        loss = train_one_epoch(model, optimizer, *seen)
        if args.fault != "train-never-called":
            model.eval()
            print(epoch, loss, validate(model, *held_out))
            model.train()
    if args.fault == "tests-a-new-model":
        model = Grader()
    model.eval()
    print("test", validate(model, *draw(200, generator)))


if __name__ == "__main__":
    main()
