"""State dicts in all their proper uses: deep copies, files, a new head, a target network, averages in place."""

import copy
import io

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(400, 10)
y = x[:, :3].argmax(1)


def net(classes=3):
    return nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, classes))


# A body of five classes gives its first layers; the head of another size is left out.
old = net(classes=5).state_dict()
model = net()
model.load_state_dict({name: tensor for name, tensor in old.items() if not name.startswith("3.")}, strict=False)
# The same by way of the model's own dictionary, of which most entries stay as they are.
state = model.state_dict()
state.update({"0.bias": old["0.bias"] * 0.5})
model.load_state_dict(state)

target = copy.deepcopy(model)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
best, best_state, file = float("inf"), None, io.BytesIO()
for epoch in range(8):
    model.train()
    for rows in torch.randperm(len(x)).split(40):
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        loss = F.cross_entropy(model(x), y).item()
    if loss < best:
        best, best_state = loss, copy.deepcopy(model.state_dict())
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
    target.load_state_dict(model.state_dict())

# Averaged in place, and loaded for the sake of hooks that run on loading: a load of the model's own tensors.
own = model.state_dict()
for name, tensor in own.items():
    if tensor.is_floating_point():
        tensor.mul_(0.9).add_(best_state[name], alpha=0.1)
model.load_state_dict(own)
model.load_state_dict(best_state)
file.seek(0)
model.load_state_dict(torch.load(file))
model.eval()
with torch.no_grad():
    print(best, F.cross_entropy(model(x), y).item())
