"""Sentence classifier: embedding, GRU, OneCycle schedule stepped per batch, loss masked by length.

Faults: `unknown-token` meets a token beyond the vocabulary in a late batch; `empty-mask` averages over tokens of
class 0 of a batch, of which one batch has none.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Tagger(nn.Module):
    def __init__(self, vocabulary=50, width=32, hidden=48):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.gru = nn.GRU(width, hidden, batch_first=True)
        self.classifier = nn.Linear(hidden, 2)

    def forward(self, tokens, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        _, hidden = self.gru(packed)
        return self.classifier(hidden[-1])


def batch(size):
    lengths = torch.randint(5, 21, (size,))
    tokens = torch.randint(1, 50, (size, 20))
    tokens[torch.arange(20)[None] >= lengths[:, None]] = 0
    score = ((tokens > 0) & (tokens < 15)).sum(1) - (tokens >= 36).sum(1)
    return tokens, lengths, (score > 0).long()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.manual_seed(19)
    torch.set_num_threads(1)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=args.steps)
    for step in range(args.steps):
        tokens, lengths, labels = batch(32)
        if args.fault == "unknown-token" and step == 180:
            tokens[3, 2] = 50
        logits = model(tokens, lengths)
        if args.fault == "empty-mask":
            if step == 150:
                labels = torch.ones_like(labels)
            loss = F.cross_entropy(logits[labels == 0], labels[labels == 0]) + F.cross_entropy(logits, labels)
        else:
            loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        if step % 50 == 49:
            accuracy = (logits.argmax(1) == labels).float().mean().item()
            print(f"step {step + 1} loss {loss.item():.4f} acc {accuracy:.2f} lr {scheduler.get_last_lr()[0]:.5f}")


if __name__ == "__main__":
    main()
