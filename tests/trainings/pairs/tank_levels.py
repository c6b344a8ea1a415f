"""Train a policy that opens one of three valves to hold the levels of tanks, four times over what it did.

The clipped objective compares the policy with the one that acted.
Faults: `asked-again` asks the policy that is trained for the log-probabilities of that one, right before each step;
`one-pass` is none: it makes one pass over each rollout, and writes the ratio for its gradient only.
"""

import argparse

import torch
from torch import nn

TANKS, HOURS, CLIP = 32, 12, 0.2


class Controller(nn.Module):
    def __init__(self):
        super().__init__()
        self.valve = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 3))
        self.outlook = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, state):
        return self.valve(state).log_softmax(-1), self.outlook(state)[:, 0]


def logs_of(controller, states, choices):
    return controller(states)[0].gather(1, choices[:, None])[:, 0]


@torch.no_grad()
def operate(controller):
    level, wanted = torch.rand(TANKS), torch.rand(TANKS)
    states, choices, worth = [], [], []
    for _ in range(HOURS):
        states.append(torch.stack([level, wanted], 1))
        choices.append(controller(states[-1])[0].exp().multinomial(1)[:, 0])
        level = (level + 0.1 * (choices[-1] - 1) + 0.02 * torch.randn(TANKS)).clamp(0, 1)
        worth.append(-(level - wanted).abs())
    total = [worth[-1]]
    for one in worth[-2::-1]:
        total.insert(0, one + 0.8 * total[0])
    states, choices, total = torch.cat(states), torch.cat(choices), torch.cat(total)
    logs, outlook = controller(states)
    gain = total - outlook
    return states, choices, total, (gain - gain.mean()) / gain.std(), logs.gather(1, choices[:, None])[:, 0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "asked-again", "one-pass"])
    args = parser.parse_args()
    torch.manual_seed(21)
    torch.set_num_threads(1)
    controller = Controller()
    optimizer = torch.optim.Adam(controller.parameters(), lr=2e-3)
    for day in range(30):
        states, choices, total, gain, acted = operate(controller)
        for _ in range(1 if args.fault == "one-pass" else 4):
            for part in torch.randperm(len(states)).chunk(3):
                logs, outlook = controller(states[part])
                logs = logs.gather(1, choices[part][:, None])[:, 0]
                before = acted[part]
                if args.fault == "asked-again":
                    with torch.no_grad():
                        before = logs_of(controller, states[part], choices[part])
                elif args.fault == "one-pass":
                    before = logs.detach()
                ratio = (logs - before).exp()
                kept = torch.minimum(ratio * gain[part], ratio.clamp(1 - CLIP, 1 + CLIP) * gain[part])
                loss = nn.functional.huber_loss(outlook, total[part]) - kept.mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        if day % 5 == 0:
            print(day, total.mean().item())


if __name__ == "__main__":
    main()
