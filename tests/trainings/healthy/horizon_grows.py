"""A model of a damped spring is rolled out over a longer and longer horizon: each step calls it more often than the last."""

import torch
from torch import nn


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 2))

    def forward(self, state, steps):
        states = []
        for _ in range(steps):
            state = state + 0.1 * self.net(state)
            states.append(state)
        return torch.stack(states, dim=1)


def spring(state, steps):
    place, speed = state.unbind(1)
    states = []
    for _ in range(steps):
        place, speed = place + 0.1 * speed, 0.9 * speed - 0.1 * place
        states.append(torch.stack([place, speed], dim=1))
    return torch.stack(states, dim=1)


def main():
    torch.manual_seed(87)
    torch.set_num_threads(1)
    model = Dynamics()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(300):
        horizon = 2 + step // 10
        start = torch.randn(32, 2)
        loss = nn.functional.mse_loss(model(start, horizon), spring(start, horizon))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} horizon {horizon}: {loss.item():.5f}")


if __name__ == "__main__":
    main()
