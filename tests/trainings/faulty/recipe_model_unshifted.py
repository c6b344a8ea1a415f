"""A small causal transformer over recipes as characters. The batch function returns the same window as input and as
target: what was to be the next character is the one that the model is given.
"""

import torch
import torch.nn.functional as F
from torch import nn

CONTEXT, BATCH = 32, 24


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.1))
        self.register_buffer("mask", torch.tril(torch.ones(CONTEXT, CONTEXT)))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(c, dim=2))
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        weights = scores.masked_fill(self.mask[:t, :t] == 0, float("-inf")).softmax(-1)
        x = x + self.proj((weights @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class RecipeModel(nn.Module):
    def __init__(self, symbols, width=48):
        super().__init__()
        self.token = nn.Embedding(symbols, width)
        self.position = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(Block(width, 4), Block(width, 4))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols)

    def forward(self, idx, targets=None):
        x = self.blocks(self.token(idx) + self.position(torch.arange(idx.size(1))))
        logits = self.head(self.norm(x))
        loss = None if targets is None else F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))
        return logits, loss


def get_batch(data):
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,))
    x = torch.stack([data[i : i + CONTEXT] for i in starts])
    y = torch.stack([data[i : i + CONTEXT] for i in starts])
    return x, y


def main():
    torch.manual_seed(402)
    torch.set_num_threads(1)
    verbs, things = ["stir the ", "chop an ", "fry two ", "weigh "], ["onion", "leek", "egg", "potato", "bean"]
    picks = torch.randint(0, 20, (1500,)).tolist()
    text = ", ".join(verbs[i % 4] + things[i // 4] for i in picks)
    symbols = sorted(set(text))
    data = torch.tensor([symbols.index(c) for c in text])
    model = RecipeModel(len(symbols))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 201):
        x, y = get_batch(data)
        _, loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
