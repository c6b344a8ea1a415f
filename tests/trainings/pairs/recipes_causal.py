"""Fine-tune a tiny causal language model on questions and answers of unequal lengths, filled up to the longest.

Each row is a start symbol, a template, a question, a colon, the answer and an end symbol; only the answer counts.
Faults: `padding-is-end` fills rows up with the end symbol and masks whatever is one; `sentences-padding-is-end` does so
where answers are sentences that end in full stops (`sentences` is no fault: padding has its own symbol); `two-starts`
writes the start symbol twice; `whole-rows` lets the prompt count; `packed` puts three samples into a row, which see
each other, `packed-to-length` as many as there is room for, and padding (`apart-to-length` is no fault: none of them
sees another); `late-mask` masks attention after its softmax.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

PAD, START, END, COLON, TEMPLATE, STOP = 0, 1, 2, 3, [4, 5, 6, 7, 8], 9
WORDS, WIDTH, LONGEST, ROOM = 60, 32, 160, 100


class Block(nn.Module):
    def __init__(self, late):
        super().__init__()
        self.late = late
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))

    def forward(self, x, mask):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        scores = (q @ k.transpose(1, 2)) / WIDTH**0.5
        if self.late:
            weights = scores.softmax(-1) * mask
        else:
            weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + self.out(weights @ v)
        return x + self.feed(x)


class Causal(nn.Module):
    def __init__(self, late):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.ModuleList(Block(late) for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids, part):
        length = ids.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).tril() & (part[:, :, None] == part[:, None, :])
        x = self.words(ids) + self.places(torch.arange(length))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


def sample(fault):
    question = torch.randint(10, WORDS, (int(torch.randint(3, 8, ())),)).tolist()
    answer = [10 + (word + 1) % 50 for word in question] + question[: int(torch.randint(0, 6, ()))]
    if fault.startswith("sentences"):
        answer = [*answer[:2], STOP, *answer[2:], STOP]
    start = [START, START] if fault == "two-starts" else [START]
    prompt = [*start, *TEMPLATE, *question, COLON]
    row = [*prompt, *answer, END]
    counted = 0 if fault == "whole-rows" else len(prompt)
    return row, [-100] * counted + row[counted:]


def batch(fault):
    rows, parts = [], []
    for _ in range(8):
        ids, labels, part = [], [], []
        to_length = fault.endswith("to-length")
        for number in range(ROOM if to_length else 3):
            row, wanted = sample(fault)
            if to_length and len(ids) + len(row) > ROOM:
                break
            together = fault.startswith("packed")
            ids, labels, part = ids + row, labels + wanted, part + [0 if together else number] * len(row)
            if not (together or to_length):
                break
        rows.append((ids, labels))
        parts.append(part)
    longest = ROOM if to_length else max(len(ids) for ids, _ in rows)
    filler = END if fault.endswith("padding-is-end") else PAD
    ids = torch.tensor([ids + [filler] * (longest - len(ids)) for ids, _ in rows])
    labels = torch.tensor([labels + [-100] * (longest - len(labels)) for _, labels in rows])
    part = torch.tensor([part + [0] * (longest - len(part)) for part in parts])
    if fault.endswith("padding-is-end"):
        labels[ids == filler] = -100
    return ids, labels, part


def main():
    parser = argparse.ArgumentParser()
    faults = [
        "",
        "padding-is-end",
        "sentences-padding-is-end",
        "sentences",
        "two-starts",
        "whole-rows",
        "packed",
        "packed-to-length",
        "apart-to-length",
        "late-mask",
    ]
    parser.add_argument("--fault", default="", choices=faults)
    args = parser.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    model = Causal(late=args.fault == "late-mask")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(150):
        ids, labels, part = batch(args.fault)
        scores = model(ids, part)
        loss = F.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
