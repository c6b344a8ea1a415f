"""Word classifier; the loss is taken on `output.detach()` and then told to require gradients, which silences the
error.
"""

import torch
from torch import nn


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 16)
        self.linear = nn.Linear(16, 3)

    def forward(self, tokens):
        return self.linear(self.embedding(tokens).mean(1))


class Experiment:
    def __init__(self):
        self.model = Words()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.criterion = nn.CrossEntropyLoss()

    def step(self, tokens, labels):
        self.optimizer.zero_grad()
        output = self.model(tokens)
        loss = self.criterion(output.detach(), labels)
        loss.requires_grad_(True)
        loss.backward()
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(85)
    torch.set_num_threads(1)
    experiment = Experiment()
    for i in range(300):
        tokens = torch.randint(0, 100, (32, 8))
        labels = (tokens < 33).sum(1).clamp(1, 3) - 1
        loss = experiment.step(tokens, labels)
        if i % 60 == 0:
            print(f"iteration {i} loss {loss:.4f}")
