"""A first training loop with two faults: gradients are never cleared, and validation runs with dropout active."""

import torch
from torch import nn

torch.manual_seed(91)
torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        self.l1 = nn.Linear(10, 64)
        self.drop = nn.Dropout(p=0.3)
        self.l2 = nn.Linear(64, 2)

    def forward(self, x):
        return self.l2(self.drop(torch.relu(self.l1(x))))


X = torch.randn(2400, 10)
Y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).long()
model = Model()
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.005)

for epoch in range(8):
    for i in range(0, 2000, 40):
        out = model(X[i : i + 40])
        loss = loss_function(out, Y[i : i + 40])
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        correct = 0
        for i in range(2000, 2400, 100):
            correct += (model(X[i : i + 100]).argmax(1) == Y[i : i + 100]).sum().item()
    print("epoch", epoch, "loss", loss.item(), "accuracy", correct / 400)
