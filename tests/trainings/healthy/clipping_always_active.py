"""RNN whose gradient norm is above the clipping threshold on nearly every step, on purpose: the usual recipe."""

import torch
from torch import nn


class Echo(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(4, 64, batch_first=True)
        self.readout = nn.Linear(64, 4)

    def forward(self, x):
        return self.readout(self.rnn(x)[0])


if __name__ == "__main__":
    torch.manual_seed(23)
    torch.set_num_threads(1)
    model = Echo()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for step in range(350):
        symbol = torch.randint(0, 4, (24, 18))
        x = nn.functional.one_hot(symbol, 4).float()
        logits = model(x)[:, 2:]
        target = torch.where(torch.rand(24, 16) < 0.3, torch.randint(0, 4, (24, 16)), symbol[:, :-2])
        loss = 10 * nn.functional.cross_entropy(logits.reshape(-1, 4), target.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f} grad norm {norm.item():.3f}")
