"""A GRU continues tunes, note by note. Its cross-entropy is written out: the log-probabilities of the right notes.

Tunes have different lengths, and are filled up with rests; a mask leaves those out of the mean.
Faults: `whole-rows` takes the mean over all positions; `unshifted` has the model name the note that it is given.
"""

import argparse

import torch
from torch import nn

REST, END, NOTES, LONGEST = 0, 1, 40, 24


def tunes(number):
    """Mostly rising by a fixed interval, with a note of its own now and then."""
    lengths = torch.randint(4, 15, (number,))
    lengths[0] = LONGEST - 1
    notes = torch.randint(2, NOTES, (number, LONGEST))
    for place in range(1, LONGEST):
        rising = (notes[:, place - 1] + 3) % (NOTES - 2) + 2
        notes[:, place] = torch.where(torch.rand(number) < 0.7, rising, notes[:, place])
    places = torch.arange(LONGEST)
    notes[places == lengths[:, None]] = END
    notes[places > lengths[:, None]] = REST
    return notes


class Player(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.notes = nn.Embedding(NOTES, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, NOTES)

    def forward(self, notes):
        return self.out(self.gru(self.notes(notes))[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=("none", "whole-rows", "unshifted"), default="none")
    fault = parser.parse_args().fault
    torch.manual_seed(409)
    torch.set_num_threads(1)
    model = Player()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(250):
        notes = tunes(32)
        given, wanted = notes[:, :-1], notes[:, :-1] if fault == "unshifted" else notes[:, 1:]
        chances = torch.log_softmax(model(given), dim=-1)
        surprise = -chances.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
        counting = wanted != REST
        loss = surprise.mean() if fault == "whole-rows" else (surprise * counting).sum() / counting.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
