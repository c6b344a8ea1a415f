"""Twenty steps, then exit status 7. Prints its arguments.

It updates its model by hand: the first optimizer of a process imports torch._dynamo, longer than torch itself.
"""

import sys

import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Linear(4, 2)


def main():
    for _ in range(20):
        model(torch.ones(8, 4)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    print(*sys.argv[1:])
    return 7


if __name__ == "__main__":
    sys.exit(main())
