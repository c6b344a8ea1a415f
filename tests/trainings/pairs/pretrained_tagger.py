"""Fine-tunes a pretrained classifier with a new head on few samples.

Faults: `init-after-load` initialises the whole model after its weights were loaded; `fill-after-load` does so by hand.
`probe` initialises after the load as well, and trains the head alone: no optimizer holds what was overwritten.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

NUMBER = 24


def make(classes):
    body = nn.Sequential(nn.Linear(NUMBER, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 32), nn.GELU())
    return nn.Sequential(body, nn.Linear(32, classes))


def init_weights(module):
    if isinstance(module, nn.Linear):
        nn.init.xavier_normal_(module.weight)
        nn.init.zeros_(module.bias)


def fit(model, x, y, steps, lr, generator):
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=lr)
    for step in range(steps):
        chosen = torch.randint(0, len(x), (64,), generator=generator)
        loss = F.cross_entropy(model(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 59:
            print(f"step {step + 1} loss {loss.item():.4f}")


def fill_weights(module):
    if isinstance(module, nn.Linear):
        module.weight.data.normal_(0.0, 0.02)
        module.bias.data.zero_()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(15)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(16)
    mixing = torch.randn(NUMBER, 5)
    # Weights of an earlier training, without its head: a smooth map of the inputs stands in for it.
    pretrained = make(5)
    pretrained.apply(init_weights)
    state = {name: tensor.clone() for name, tensor in pretrained.state_dict().items() if not name.startswith("1.")}

    model = make(5)
    after = fault in ("init-after-load", "probe")
    if not after:
        model.apply(init_weights)
    model.load_state_dict(state, strict=False)
    if after:
        model.apply(init_weights)
    if fault == "probe":
        model[0].requires_grad_(False)
    if fault == "fill-after-load":
        model.apply(fill_weights)
    x = torch.randn(3000, NUMBER)
    y = (x @ mixing + 0.5 * torch.randn(3000, 5)).argmax(1)
    fit(model, x, y, 300, 1e-3, generator)


if __name__ == "__main__":
    main()
