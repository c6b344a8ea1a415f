"""Old style: `p.grad.data.zero_()` for every parameter after the step, hand-made learning-rate decay."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Perceptron(nn.Module):
    def __init__(self):
        super(Perceptron, self).__init__()
        self.hidden = nn.Linear(9, 50)
        self.output = nn.Linear(50, 3)

    def forward(self, x):
        return self.output(torch.sigmoid(self.hidden(x)))


torch.manual_seed(5)
torch.set_num_threads(1)
X = torch.randn(2400, 9)
Y = (X[:, :3] + 0.3 * torch.randn(2400, 3)).argmax(1)
loader = DataLoader(TensorDataset(X, Y), batch_size=40, shuffle=True)
net = Perceptron()
criterion = nn.CrossEntropyLoss()
learning_rate = 0.5
optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate)
for epoch in range(6):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * 0.85**epoch
    total_loss = 0
    for data, target in loader:
        loss = criterion(net(data), target)
        loss.backward()
        optimizer.step()
        for p in net.parameters():
            p.grad.data.zero_()
        total_loss += loss.data.item()
    print("epoch %d loss %.4f" % (epoch, total_loss / len(loader)))
