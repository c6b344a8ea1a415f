"""A loop whose batches lie in a buffer of NumPy's. What the arguments say is done with it in each step:

between, after     it is filled anew between forward and backward, or after the backward
data               the same as between, by an operation of torch on `.data`
swapped            between both, the input's `.data` becomes another tensor
in place           an operation of torch, which the version counts, writes into it where no gradient needs it
scaled             the model makes numbers of its own of its input, and does not need it again
inline             the loop does not hold the tensor that it makes of the buffer
once               only in step 20
"""

import sys

import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, scaled: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(24, 3)
        self.scaled = scaled

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.layer(features / 2 + 1 if self.scaled else features)


def main(said: list[str]) -> None:
    torch.manual_seed(1)
    rng, buffer = np.random.default_rng(0), np.zeros((16, 24), np.float32)
    model = Net("scaled" in said)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(120):
        buffer[:] = rng.standard_normal(buffer.shape)
        inputs = torch.from_numpy(buffer)
        if "inline" in said:
            del inputs
            loss = model(features=torch.from_numpy(buffer)).square().mean()
        else:
            loss = model(features=inputs).square().mean()
        if "between" in said and ("once" not in said or step == 20):
            buffer[:] = rng.standard_normal(buffer.shape)
        if "data" in said:
            inputs.data.mul_(1.5)
        if "swapped" in said:
            inputs.data = torch.ones(16, 24)
        if "in place" in said:
            inputs.neg_()
        optimizer.zero_grad()
        loss.backward()
        if "after" in said:
            buffer[:] = 0
        optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1:])
