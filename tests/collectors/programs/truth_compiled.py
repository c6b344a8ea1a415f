"""What truth.py does, with torch.compile: the model is compiled, and the loop around it is not."""

import torch
from torch import nn
from torch.nn import functional
from truth import adam, evaluate, loaded, norm_of, tell_all


def compiled(truth):
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5))
    optimizer = adam(model)
    fast = torch.compile(model, backend="aot_eager")
    train, valid = loaded(), loaded(18, seed=1)
    for _ in range(2):
        for x, y in train:
            optimizer.zero_grad()
            loss = functional.cross_entropy(fast(x), y)
            loss.backward()
            norm = norm_of(model.parameters())
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            truth.step(
                loss=loss.item(),
                backwards=1,
                microbatches=1,
                batch_size=len(x),
                loader_batches=1,
                grad_norm=norm,
                lr=0.01,
                clips=1,
                clip_max_norm=0.1,
                model_in_train=True,
                autocast=0,
                grads_none=0,
                grads_carried=0,
            )
            optimizer.step()
        truth.evaluated(**evaluate(fast, valid), model_in_train=False, grad_mode=0, trained=True)


IDIOMS = (compiled,)

if __name__ == "__main__":
    tell_all(IDIOMS)
