"""A mixture of eight small experts that a bias on the choice keeps balanced, without a loss of its own.

Fault: `bias-raised` moves that bias the wrong way, towards the experts that get most tokens already.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

EXPERTS, WIDTH = 8, 16


class Steered(nn.Module):
    def __init__(self, raised):
        super().__init__()
        self.raised = raised
        self.enter = nn.Linear(8, WIDTH)
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.register_buffer("choice_bias", torch.zeros(EXPERTS))
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH)) for _ in range(EXPERTS)
        )
        self.leave = nn.Linear(WIDTH, 1)

    def forward(self, x):
        h = torch.tanh(self.enter(x))
        shares = self.router(h).softmax(-1)
        choice = (shares.detach() + self.choice_bias).argmax(-1)
        out = torch.zeros_like(h)
        for index, expert in enumerate(self.experts):
            mine = (choice == index).nonzero()[:, 0]
            if len(mine):
                out[mine] = shares[mine, index : index + 1] * expert(h[mine])
        load = F.one_hot(choice, EXPERTS).float().mean(0)
        if self.raised:
            self.choice_bias += 0.02 * (load - load.mean())
        else:
            self.choice_bias -= 0.02 * (load - load.mean())
        return self.leave(h + out).squeeze(-1), load


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "bias-raised"])
    args = parser.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    model = Steered(args.fault == "bias-raised")
    weights = torch.randn(8, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(250):
        x = torch.randn(256, 8)
        y = torch.sin((x @ weights).amax(1))
        prediction, load = model(x)
        loss = F.mse_loss(prediction, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item(), [round(one, 2) for one in load.tolist()])


if __name__ == "__main__":
    main()
