"""An LSTM writes place names, letter by letter. Short names are filled up with zeros, and the loss counts the zeros."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

START, END = 1, 2
FIRST = ["ober", "nieder", "klein", "alt", "neu", "bad", "hoch", "sankt"]
LAST = ["au", "bach", "dorf", "kirchen", "berg", "felden", "ried", "ulm", "heim"]


class Names(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.names = []
        for _ in range(count):
            one, two, three = (int(torch.randint(0, n, (1,), generator=generator)) for n in (8, 9, 9))
            name = FIRST[one] * (three > 3) + LAST[two] + (" an der " + LAST[three]) * (three == 8)
            letters = [3 if c == " " else ord(c) - 93 for c in name]
            self.names.append(torch.tensor([START, *letters, END]))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return self.names[index]


class Writer(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.letters = nn.Embedding(30, width, padding_idx=0)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, 30)

    def forward(self, x):
        return self.out(self.lstm(self.letters(x))[0])


def main():
    torch.manual_seed(403)
    torch.set_num_threads(1)
    train = DataLoader(
        Names(1600, 1), batch_size=32, shuffle=True, collate_fn=lambda b: pad_sequence(b, batch_first=True)
    )
    model = Writer()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(5):
        for names in train:
            scores = model(names[:, :-1])
            loss = criterion(scores.transpose(1, 2), names[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
