"""Sequence models whose targets look like their inputs, or end in one value, and may: a letter model with its padding
ignored, an autoencoder, copying with a decoder, a model that shifts its own input, and tags that are mostly one.
"""

import torch
import torch.nn.functional as F
from torch import nn

SYMBOLS, WIDTH, LENGTH = 16, 32, 12


def rows(size=24, padded=False):
    start, stride = torch.randint(0, SYMBOLS - 1, (size, 1)), torch.randint(1, 4, (size, 1))
    ids = 1 + (start + stride * torch.arange(LENGTH + 1)) % (SYMBOLS - 1)
    ends = torch.randint(3, LENGTH + 1, (size, 1))
    return ids.masked_fill(torch.arange(LENGTH + 1) > ends, 0) if padded else ids


class Letters(nn.Module):
    def __init__(self, shifts=False, classes=SYMBOLS):
        super().__init__()
        self.shifts = shifts
        self.embed = nn.Embedding(SYMBOLS, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.1)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, ids):
        x = self.embed(ids)
        if self.shifts:
            x = F.pad(x, (0, 0, 1, 0))[:, :-1]
        mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
        return self.head(self.encoder(x + self.position[: ids.size(1)], mask=mask, is_causal=True))


class Recurrent(nn.Module):
    def __init__(self, copies):
        super().__init__()
        self.copies = copies
        self.embed = nn.Embedding(SYMBOLS, WIDTH)
        self.encoder, self.decoder = nn.GRU(WIDTH, 64, batch_first=True), nn.GRU(WIDTH, 64, batch_first=True)
        self.head = nn.Linear(64, SYMBOLS)

    def forward(self, ids):
        _, state = self.encoder(self.embed(ids))
        before = F.pad(ids, (1, 0))[:, :-1] if self.copies else torch.zeros_like(ids)
        return self.head(self.decoder(self.embed(before), state)[0])


def train(name, model, batch, **options):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(80):
        ids, target = batch()
        loss = F.cross_entropy(model(ids).flatten(0, 1), target.flatten(), **options)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(name, round(loss.item(), 3))


def next_letter(padded=True, fill=0):
    ids = rows(padded=padded)
    return ids[:, :-1], ids[:, 1:].masked_fill(ids[:, 1:] == 0, fill)


def same():
    ids = rows()[:, :-1]
    return ids, ids


def rare_tags():
    ids = rows()[:, :-1]
    return ids, (ids == 5).long() * 2 + (ids == 6).long()


def main():
    torch.manual_seed(404)
    torch.set_num_threads(1)
    train("padding by its id", Letters(), next_letter, ignore_index=0)
    train("padding by -100", Letters(), lambda: next_letter(fill=-100))
    train("padding without weight", Letters(), next_letter, weight=(torch.arange(SYMBOLS) > 0).float())
    train("shifts its input", Letters(shifts=True), same)
    train("autoencoder", Recurrent(copies=False), same)
    train("copies", Recurrent(copies=True), same)
    train("tags", Letters(classes=3), rare_tags, label_smoothing=0.05)


if __name__ == "__main__":
    main()
