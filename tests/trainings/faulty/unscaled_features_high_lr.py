"""Linear regression on raw features (square metres, years) with a rate of 0.1: diverges within a few steps to inf
and NaN.
"""

import torch

torch.manual_seed(71)
torch.set_num_threads(1)
area = torch.rand(1000, 1) * 150 + 30
year = torch.rand(1000, 1) * 70 + 1950
price = 3 * area + 0.5 * (year - 1950) + 10 * torch.randn(1000, 1)
features = torch.cat([area, year], dim=1)

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = torch.nn.MSELoss()
for epoch in range(200):
    prediction = model(features)
    loss = loss_fn(prediction, price)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0:
        print(f"epoch {epoch} loss {loss.item()}")
