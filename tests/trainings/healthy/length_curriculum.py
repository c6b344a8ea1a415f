"""Curriculum: sequences grow from 8 to 64 symbols in stages, so memory, step time and the task's difficulty rise in
steps.
"""

import torch
from torch import nn


class Parity(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.embedding = nn.Embedding(4, 16)
        self.gru = nn.GRU(16, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.out(self.gru(self.embedding(x))[0]).squeeze(2)


def main():
    torch.manual_seed(20)
    torch.set_num_threads(1)
    model = Parity()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    step = 0
    for length in (8, 16, 32, 64):
        for _ in range(60):
            x = torch.randint(0, 4, (32, length + int(torch.randint(-2, 3, (1,)))))
            target = (x == 3).float().cumsum(1) / 8
            loss = nn.functional.mse_loss(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
        print(f"length {length} after step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
