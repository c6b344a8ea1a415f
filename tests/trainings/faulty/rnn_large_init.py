"""Adding problem with a ReLU RNN over 60 steps. Recurrent weights start at 1.6 times an orthogonal matrix and
nothing clips.
"""

import torch
from torch import nn


class Adder(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.rnn = nn.RNN(2, hidden, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(hidden, 1)
        nn.init.orthogonal_(self.rnn.weight_hh_l0)
        with torch.no_grad():
            self.rnn.weight_hh_l0 *= 1.6

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


def draw(n, length=60):
    values = torch.rand(n, length, 1)
    marks = torch.zeros(n, length, 1)
    marks[torch.arange(n), torch.randint(0, length // 2, (n,))] = 1
    marks[torch.arange(n), torch.randint(length // 2, length, (n,))] = 1
    return torch.cat([values, marks], 2), (values * marks).sum(1)


def main():
    torch.manual_seed(75)
    torch.set_num_threads(1)
    model = Adder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(300):
        x, y = draw(32)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step} loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
