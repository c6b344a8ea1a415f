"""Character model with an LSTM, truncated backpropagation through time and gradient clipping.

Faults: `attached-state` carries the hidden state over without detaching it, so the second backward fails;
`states-kept` keeps every hidden state, with its graph, for a later plot; `both-ways` lets the LSTM run backwards, too.
"""

import argparse

import torch
from torch import nn


def make_text(length):
    words = ["the ", "cat ", "sat ", "on ", "a ", "mat. ", "dog ", "ran ", "to ", "it. "]
    picks = torch.randint(0, len(words), (length,))
    return "".join(words[int(i)] for i in picks)


class CharModel(nn.Module):
    def __init__(self, vocabulary, hidden, both=False):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 24)
        self.lstm = nn.LSTM(24, hidden, batch_first=True, bidirectional=both)
        self.decode = nn.Linear(2 * hidden if both else hidden, vocabulary)

    def forward(self, tokens, state=None):
        out, state = self.lstm(self.embed(tokens), state)
        return self.decode(out), state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--hidden", type=int, default=64)
    args = parser.parse_args()
    torch.manual_seed(9)
    torch.set_num_threads(1)
    text = make_text(16000)
    symbols = sorted(set(text))
    data = torch.tensor([symbols.index(c) for c in text])
    batch, window = 16, 20
    columns = data[: len(data) // batch * batch].view(batch, -1)
    model = CharModel(len(symbols), args.hidden, both=args.fault == "both-ways")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    state = None
    states = []
    for step, start in enumerate(range(0, columns.size(1) - window - 1, window)):
        inputs = columns[:, start : start + window]
        targets = columns[:, start + 1 : start + window + 1]
        if state is not None and args.fault != "attached-state":
            state = tuple(s.detach() for s in state)
        logits, state = model(inputs, state)
        if args.fault == "states-kept":
            states.append(state[0])
        loss = criterion(logits.reshape(-1, len(symbols)), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 0:
            print(f"| step {step:4d} | loss {loss.item():.3f} |")


if __name__ == "__main__":
    main()
