"""Train a policy that sends parcels to chutes, by rewards that it gets at once, with a value of each parcel as baseline.

The log-probabilities, their entropy and both losses are written out.
Faults: `entropy-added` adds the entropy of the policy to the loss, where its bonus is subtracted; `baseline-attached`
lets the gradient of the policy run into the values that its rewards are compared with.
"""

import argparse

import torch
from torch import nn

FEATURES, CHUTES, PARCELS = 12, 6, 128


class Sorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 48), nn.ReLU())
        self.chutes, self.worth = nn.Linear(48, CHUTES), nn.Linear(48, 1)

    def forward(self, parcels):
        hidden = self.body(parcels)
        return self.chutes(hidden), self.worth(hidden)


def objective(scores, worth, taken, reward, fault):
    log_p = scores - scores.logsumexp(-1, keepdim=True)
    entropy = -(log_p.exp() * log_p).sum(-1)
    surprise = reward - (worth[:, 0] if fault == "baseline-attached" else worth[:, 0].detach())
    policy = -(surprise * log_p[torch.arange(len(taken)), taken]).mean()
    value = (reward - worth[:, 0]).square().mean()
    bonus = -0.2 if fault == "entropy-added" else 0.02
    return policy + 0.5 * value - bonus * entropy.mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "entropy-added", "baseline-attached"])
    args = parser.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    right = torch.randn(FEATURES, CHUTES)
    sorter = Sorter()
    optimizer = torch.optim.RMSprop(sorter.parameters(), lr=2e-3)
    for step in range(300):
        parcels = torch.randn(PARCELS, FEATURES)
        with torch.no_grad():
            taken = torch.multinomial(sorter(parcels)[0].softmax(-1), 1)[:, 0]
        reward = (parcels @ right)[torch.arange(PARCELS), taken] / FEATURES**0.5
        loss = objective(*sorter(parcels), taken, reward, args.fault)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, reward.mean().item())


if __name__ == "__main__":
    main()
