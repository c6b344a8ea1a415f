"""Encoder-decoder LSTM that reverses short sequences, written as functions. `train_step` never clears the gradients."""

import argparse

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, symbols, width):
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)

    def forward(self, source):
        return self.lstm(self.embedding(source))[1]


class Decoder(nn.Module):
    def __init__(self, symbols, width):
        super().__init__()
        self.embedding = nn.Embedding(symbols + 1, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, symbols)

    def forward(self, previous, state):
        return self.out(self.lstm(self.embedding(previous), state)[0])


def make_batch(size, length, symbols):
    source = torch.randint(0, symbols, (size, length))
    target = source.flip(1)
    start = torch.full((size, 1), symbols)
    return source, torch.cat([start, target[:, :-1]], 1), target


def train_step(encoder, decoder, optimizer, criterion, batch):
    source, previous, target = batch
    logits = decoder(previous, encoder(source))
    loss = criterion(logits.transpose(1, 2), target)
    loss.backward()
    nn.utils.clip_grad_norm_(list(encoder.parameters()) + list(decoder.parameters()), 5.0)
    optimizer.step()
    return loss.item()


def main(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    encoder, decoder = Encoder(8, 64), Decoder(8, 64)
    parameters = list(encoder.parameters()) + list(decoder.parameters())
    optimizer = torch.optim.Adam(parameters, lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    average = None
    for step in range(1, args.steps + 1):
        loss = train_step(encoder, decoder, optimizer, criterion, make_batch(32, 5, 8))
        average = loss if average is None else 0.95 * average + 0.05 * loss
        if step % 50 == 0:
            print(f"{step}/{args.steps} smoothed loss {average:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
