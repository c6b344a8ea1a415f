"""Fine-tune a tiny causal language model that shifts its labels inside; prompts are masked, only answers count.

Two micro-batches a step, whose losses are divided by the number of answer tokens of the step. Faults: `shifted-labels`
hands over labels that are shifted already; `answers-cut-off` truncates every row within its prompt; `mean-of-means`
averages the two means whatever the answers' lengths.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

WORDS, WIDTH, LENGTH = 60, 32, 32


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.qkv, self.mixed = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, ids, labels, reduction="mean"):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        q, k, v = self.qkv(self.norm(x)).unsqueeze(1).chunk(3, dim=-1)
        x = x + self.mixed(F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1))
        labels = F.pad(labels, (0, 1), value=-100)[:, 1:]
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction=reduction)


def rows(size, answer):
    prompt = torch.randint(2, WORDS, (size, LENGTH - answer))
    ids = torch.cat([prompt, (prompt[:, :1] + torch.arange(answer)) % WORDS], 1)
    labels = ids.clone()
    labels[:, : LENGTH - answer] = -100
    return ids, labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "shifted-labels", "answers-cut-off", "mean-of-means"])
    args = parser.parse_args()
    torch.manual_seed(6)
    torch.set_num_threads(1)
    model = Causal()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(200):
        parts = [rows(8, answer=3), rows(8, answer=24)]
        counted = sum(int((labels[:, 1:] != -100).sum()) for _, labels in parts)
        total = 0.0
        for ids, labels in parts:
            if args.fault == "shifted-labels":
                ids, labels = ids[:, :-1], labels[:, 1:]
            if args.fault == "answers-cut-off":
                ids, labels = ids[:, :8], labels[:, :8]
            if args.fault in ("mean-of-means", "answers-cut-off"):
                loss = model(ids, labels) / len(parts)
            else:
                loss = model(ids, labels, reduction="sum") / counted
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            print(step, total)


if __name__ == "__main__":
    main()
