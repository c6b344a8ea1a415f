"""A transformer encoder learns to count the small digits of a row; warm-up then cosine decay, validation every 60
steps.

Faults: `no-eval` validates with dropout active; `losses-kept` collects the loss tensors for a plot at the end;
`validation-with-grad` validates without `no_grad`.
"""

import argparse
import contextlib
import math

import torch
import torch.nn.functional as F
from torch import nn


def get_batch(size, generator):
    tokens = torch.randint(0, 10, (size, 16), generator=generator)
    target = (tokens < 3).sum(1) // 2
    return tokens, target.clamp(max=4)


class Encoder(nn.Module):
    def __init__(self, width=48, heads=4, layers=2):
        super().__init__()
        self.token = nn.Embedding(10, width)
        self.position = nn.Parameter(torch.randn(1, 16, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 5)

    def forward(self, tokens):
        return self.head(self.encoder(self.token(tokens) + self.position).mean(1))


def evaluate(model, generator, args):
    if args.fault != "no-eval":
        model.eval()
    losses = []
    with contextlib.nullcontext() if args.fault == "validation-with-grad" else torch.no_grad():
        for _ in range(4):
            tokens, target = get_batch(64, generator)
            losses.append(F.cross_entropy(model(tokens), target).item())
    model.train()
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(21)
    torch.set_num_threads(1)
    train_rng, val_rng = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    warmup = 30

    def rate(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (args.steps - warmup)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    train_losses = []
    for step in range(args.steps):
        tokens, target = get_batch(32, train_rng)
        loss = F.cross_entropy(model(tokens), target)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        train_losses.append(loss if args.fault == "losses-kept" else loss.item())
        if (step + 1) % 60 == 0:
            recent = sum(float(value) for value in train_losses[-60:]) / 60
            print(f"step {step + 1}: train {recent:.4f} val {evaluate(model, val_rng, args):.4f}")


if __name__ == "__main__":
    main()
