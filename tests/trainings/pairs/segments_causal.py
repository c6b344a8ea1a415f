"""Tune a tiny causal language model on short tasks, several of which share a row: the mask numbers them from 1.

Each task is letters, a sign, and the answer with an end symbol; only the answer counts, and zeros fill a row up. The
fault `as-flags` reads the numbers as flags, as models of transformers do: all that is not 0 is visible.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

PAD, END, SIGN, LETTERS, WIDTH, ROW = 0, 1, 2, 12, 32, 48


class Tuned(nn.Module):
    def __init__(self, flags):
        super().__init__()
        self.flags = flags
        self.letters, self.places = nn.Embedding(3 + LETTERS, WIDTH), nn.Embedding(ROW, WIDTH)
        self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.feed = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))
        self.head = nn.Linear(WIDTH, 3 + LETTERS)

    def forward(self, input_ids, attention_mask):
        length = input_ids.shape[1]
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        if self.flags:
            seen = seen & (attention_mask[:, None] != 0) | torch.eye(length, dtype=torch.bool)
        else:
            seen = seen & (attention_mask[:, :, None] == attention_mask[:, None])
        x = self.letters(input_ids) + self.places(torch.arange(length))
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.head(x + self.feed(x))


def collate(rows):
    ids = torch.full((rows, ROW), PAD)
    labels = torch.full((rows, ROW), -100)
    numbers = torch.zeros(rows, ROW, dtype=torch.long)
    for row in range(rows):
        at, number = 0, 1
        while True:
            asked = torch.randint(3, 3 + LETTERS, (int(torch.randint(3, 7, ())),)).tolist()
            task, answer = [*asked, SIGN], [*sorted(asked), END]
            end = at + len(task) + len(answer)
            if end > ROW:
                break
            ids[row, at:end] = torch.tensor(task + answer)
            labels[row, at + len(task) : end] = torch.tensor(answer)
            numbers[row, at:end] = number
            at, number = end, number + 1
    return {"input_ids": ids, "attention_mask": numbers, "labels": labels}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "as-flags"])
    args = parser.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    model = Tuned(args.fault == "as-flags")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(150):
        batch = collate(8)
        labels = batch.pop("labels")
        scores = model(**batch)
        loss = F.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
