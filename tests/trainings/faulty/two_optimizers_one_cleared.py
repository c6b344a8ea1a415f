"""Recommender with one optimizer for the embeddings and one for the network on top.
Only the network's gradients are cleared: `net_optimizer.zero_grad()` lacks its partner for `table_optimizer`.
"""

import torch
from torch import nn


class Ratings(nn.Module):
    def __init__(self, users, items, width):
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.mlp = nn.Sequential(nn.Linear(2 * width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, user, item):
        return self.mlp(torch.cat([self.users(user), self.items(item)], dim=1)).squeeze(1)


def main():
    torch.manual_seed(16)
    torch.set_num_threads(1)
    taste, kind = torch.randn(60, 4), torch.randn(40, 4)
    model = Ratings(60, 40, 16)
    tables = [*model.users.parameters(), *model.items.parameters()]
    table_optimizer = torch.optim.SGD(tables, lr=0.01)
    net_optimizer = torch.optim.Adam(model.mlp.parameters(), lr=2e-3)
    running = 0.0
    for step in range(1, 501):
        user, item = torch.randint(0, 60, (128,)), torch.randint(0, 40, (128,))
        rating = (taste[user] * kind[item]).sum(1) + 0.1 * torch.randn(128)
        net_optimizer.zero_grad()
        loss = nn.functional.huber_loss(model(user, item), rating)
        loss.backward()
        net_optimizer.step()
        table_optimizer.step()
        running += loss.item()
        if step % 100 == 0:
            print(f"step {step}  loss {running / 100:.4f}")
            running = 0.0


if __name__ == "__main__":
    main()
