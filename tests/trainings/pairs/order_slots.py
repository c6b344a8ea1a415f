"""Name the slots of spoken orders (how many, of what, how large) with a packed GRU.

Tags of padded positions are `SKIPPED`, which the loss ignores. Fault `filled-with-zeros`: they are filled up with 0, the
number of the vocabularies' padding, and the loss still ignores `SKIPPED`. Outputs at padded positions are zeros, of
which only the bias of the last layer learns anything: the loss is higher than that of the words.
"""

import argparse
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

TAGS = ["<pad>", "other", "count", "thing", "size"]
WORDS = {
    "other": "please we would like and then for the of with some also".split(),
    "count": "one two three four five six".split(),
    "thing": "coats hats scarves gloves boots".split(),
    "size": "small medium large".split(),
}
NUMBERS = {word: 1 + at for at, word in enumerate(word for words in WORDS.values() for word in words)}
SKIPPED = -1


def order(draw):
    slots = ["count", "size", "thing"]
    kinds = ["other"] * draw.randint(0, 2)
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        kinds += [*slots, *["other"] * draw.randint(0, 3)]
    words = torch.tensor([NUMBERS[draw.choice(WORDS[kind])] for kind in kinds])
    return words, torch.tensor([TAGS.index(kind) for kind in kinds])


def together(orders, filler):
    words = pad_sequence([one for one, _ in orders], batch_first=True)
    tags = pad_sequence([one for _, one in orders], batch_first=True, padding_value=filler)
    return words, tags, torch.tensor([len(one) for one, _ in orders])


class Slots(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(1 + len(NUMBERS), width, padding_idx=0)
        self.reader = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * width, len(TAGS))

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.words(words), lengths, batch_first=True, enforce_sorted=False)
        return self.tags(pad_packed_sequence(self.reader(packed)[0], batch_first=True)[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "filled-with-zeros"])
    args = parser.parse_args()
    torch.manual_seed(12)
    torch.set_num_threads(1)
    draw = random.Random(12)
    orders = [order(draw) for _ in range(960)]
    model = Slots()
    criterion = nn.CrossEntropyLoss(ignore_index=SKIPPED)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(4):
        draw.shuffle(orders)
        total = 0.0
        for at in range(0, len(orders), 24):
            words, tags, lengths = together(orders[at : at + 24], 0 if args.fault else SKIPPED)
            loss = criterion(model(words, lengths).transpose(1, 2), tags)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / 40:.3f}")


if __name__ == "__main__":
    main()
