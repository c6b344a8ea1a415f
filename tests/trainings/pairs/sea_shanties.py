"""Train a small transformer on lines of a made-up song, one token after the other; then let it sing.

Fault: `no-mask` calls the encoder without its causal mask.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

WORDS, WIDTH, LENGTH = 60, 48, 24


def song(count, generator):
    """Each word follows from the one before, three times out of four; the others are drawn."""
    following = torch.randperm(WORDS, generator=torch.Generator().manual_seed(5))
    tokens = torch.randint(0, WORDS, (count, LENGTH + 1), generator=generator)
    for place in range(1, LENGTH + 1):
        kept = torch.rand(count, generator=generator) < 0.75
        tokens[:, place] = torch.where(kept, following[tokens[:, place - 1]], tokens[:, place])
    return tokens


class Singer(nn.Module):
    def __init__(self, masked):
        super().__init__()
        self.masked = masked
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 96, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.words(tokens) + self.places(torch.arange(length))
        if not self.masked:
            return self.head(self.layers(x))
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.layers(x, mask=mask, is_causal=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "no-mask"])
    args = parser.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    train, held_out = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    model = Singer(masked=args.fault != "no-mask")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 251):
        tokens = song(32, train)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            model.eval()
            with torch.no_grad():
                tokens = song(64, held_out)
                value = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            model.train()
            print(step, loss.item(), value.item())


if __name__ == "__main__":
    main()
