"""Masked language model: most positions are ignored in the loss; a validation pass on fixed tensors in memory each
epoch.
"""

import torch
import torch.nn.functional as F
from torch import nn

MASK, IGNORE = 20, -100


class Model(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.embedding = nn.Embedding(21, width)
        self.position = nn.Embedding(12, width)
        layer = nn.TransformerEncoderLayer(width, 4, 80, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(width, 20)

    def forward(self, ids):
        x = self.embedding(ids) + self.position(torch.arange(ids.size(1)))
        return self.head(self.encoder(x))


def sentences(n):
    start = torch.randint(0, 20, (n, 1))
    return (start + torch.arange(12) * torch.randint(1, 3, (n, 1))) % 20


def mask(ids):
    chosen = torch.rand(ids.shape) < 0.2
    chosen[:, 0] = True
    return ids.masked_fill(chosen, MASK), ids.masked_fill(~chosen, IGNORE)


def main():
    torch.manual_seed(37)
    torch.set_num_threads(1)
    val_inputs, val_labels = mask(sentences(200))
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(6):
        model.train()
        for _ in range(50):
            inputs, labels = mask(sentences(32))
            loss = F.cross_entropy(model(inputs).reshape(-1, 20), labels.reshape(-1), ignore_index=IGNORE)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            val = F.cross_entropy(model(val_inputs).reshape(-1, 20), val_labels.reshape(-1), ignore_index=IGNORE)
        print(f"epoch {epoch}: train {loss.item():.4f} val {val.item():.4f}")


if __name__ == "__main__":
    main()
