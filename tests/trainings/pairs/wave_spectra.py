"""Draw pairs of wave height and period by a Wasserstein critic whose weights are kept within a box.

Fault: `bounded-in-vain` computes the weights within the box and does not keep them.
"""

import argparse
import copy

import torch
from torch import nn

BOX = 0.1


def layers(*widths):
    parts = [part for a, b in zip(widths, widths[1:]) for part in (nn.Linear(a, b), nn.LeakyReLU(0.2))]
    return nn.Sequential(*parts[:-1])


def measured(count):
    sea = torch.randint(0, 5, (count,)) * 1.2566
    return 1.5 * torch.stack([sea.cos(), sea.sin()], 1) + 0.1 * torch.randn(count, 2)


class Game:
    def __init__(self, fault):
        self.fault = fault
        self.maker, self.critic = layers(6, 64, 64, 2), layers(2, 64, 64, 64, 1)
        self.of_maker = torch.optim.RMSprop(self.maker.parameters(), lr=5e-4)
        self.of_critic = torch.optim.RMSprop(self.critic.parameters(), lr=5e-4)
        self.average = copy.deepcopy(self.maker).requires_grad_(False)

    def judge(self, real):
        with torch.no_grad():
            made = self.maker(torch.randn(len(real), 6))
        loss = self.critic(made).mean() - self.critic(real).mean()
        self.of_critic.zero_grad()
        loss.backward()
        self.of_critic.step()
        self.bound()
        return loss.item()

    def bound(self):
        for weight in self.critic.parameters():
            if self.fault == "bounded-in-vain":
                weight.data.clamp(-BOX, BOX)
            else:
                weight.data.clamp_(-BOX, BOX)

    def make(self):
        self.critic.requires_grad_(False)
        loss = -self.critic(self.maker(torch.randn(128, 6))).mean()
        self.of_maker.zero_grad()
        loss.backward()
        self.of_maker.step()
        self.critic.requires_grad_(True)
        with torch.no_grad():
            for kept, current in zip(self.average.parameters(), self.maker.parameters()):
                kept.lerp_(current, 0.05)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "bounded-in-vain"])
    torch.manual_seed(5)
    torch.set_num_threads(1)
    game = Game(parser.parse_args().fault)
    for turn in range(500):
        for _ in range(5):
            gap = game.judge(measured(128))
        game.make()
        if turn % 50 == 0:
            print(turn, gap)


if __name__ == "__main__":
    main()
