"""Skip-gram with sparse embeddings under SparseAdam and a dense layer under Adam; each optimizer clears its own."""

import torch
import torch.nn.functional as F
from torch import nn


class SkipGram(nn.Module):
    def __init__(self, vocabulary=400, width=24):
        super().__init__()
        self.center = nn.Embedding(vocabulary, width, sparse=True)
        self.context = nn.Embedding(vocabulary, width, sparse=True)
        self.mix = nn.Linear(width, width)

    def forward(self, center, context):
        return (self.mix(self.center(center)).unsqueeze(1) * self.context(context)).sum(2)


def main():
    torch.manual_seed(21)
    torch.set_num_threads(1)
    model = SkipGram()
    tables = [model.center.weight, model.context.weight]
    optimizers = [torch.optim.SparseAdam(tables, lr=0.02), torch.optim.Adam(model.mix.parameters(), lr=2e-3)]
    for step in range(350):
        center = torch.randint(0, 400, (64,))
        near = (center + torch.randint(1, 4, (64,))) % 400
        far = torch.randint(0, 400, (64, 4))
        logits = model(center, torch.cat([near.unsqueeze(1), far], 1))
        labels = torch.zeros_like(logits)
        labels[:, 0] = 1
        loss = F.binary_cross_entropy_with_logits(logits, labels)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if step % 50 == 0:
            print(f"{step=} {loss.item()=:.4f}")


if __name__ == "__main__":
    main()
