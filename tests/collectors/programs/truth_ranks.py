"""What truth.py does, on two ranks that this program forks: each prints what its own recording should say."""

import faulthandler
import math
import os
import sys
import tempfile
import time
from pathlib import Path

import torch.distributed as dist
from torch import multiprocessing, nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from truth import adam, data, evaluate, loaded, mean, tell_all

RANKS, EVERY = 2, 2


def trained(truth, model, synchronize):
    """Accumulation of two, clipping, and a validation of all samples on each rank."""
    optimizer = adam(model)
    samples = TensorDataset(*data(48))
    sampler = DistributedSampler(samples, shuffle=False)
    train, valid = DataLoader(samples, batch_size=4, sampler=sampler), loaded(20, 8, seed=1)
    for _ in range(2):
        values = []
        for number, (x, y) in enumerate(train, 1):
            synchronize(number % EVERY == 0)
            loss = functional.cross_entropy(model(x), y)
            (loss / EVERY).backward()
            values.append(loss.item())
            if number % EVERY == 0:
                squares = [whole(p.grad).double().square().sum().item() for p in model.parameters()]
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                truth.step(
                    loss=mean(values),
                    backwards=EVERY,
                    microbatches=EVERY,
                    batch_size=4 * EVERY,
                    loader_batches=EVERY,
                    grad_norm=math.sqrt(sum(squares)),
                    clips=1,
                    clip_max_norm=0.1,
                    lr=0.01,
                    loss_divisor=2.0,
                    model_in_train=True,
                    grads_none=0,
                    grads_carried=0,
                )
                optimizer.step()
                optimizer.zero_grad()
                values = []
        truth.evaluated(**evaluate(model, valid), model_in_train=False, grad_mode=0, trained=True)


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def made():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 5))


def data_parallel(truth):
    model = nn.parallel.DistributedDataParallel(made())

    def synchronize(now):
        model.require_backward_grad_sync = now

    trained(truth, model, synchronize)


def fully_sharded(truth):
    model = made()
    for layer in (model[0], model[3]):
        fully_shard(layer)
    fully_shard(model)
    trained(truth, model, model.set_requires_gradient_sync)


IDIOMS = (data_parallel, fully_sharded)


def rank(number, folder):
    faulthandler.dump_traceback_later(60, exit=True)
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(RANKS))
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=RANKS)
    with open(Path(folder) / f"said{number}", "w") as sys.stdout:
        tell_all(IDIOMS)
    time.sleep(0.5)  # for Gloo's threads, which may still hold tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ranks = multiprocessing.start_processes(rank, (folder,), nprocs=RANKS, start_method="fork", join=False)
        faulthandler.dump_traceback_later(90, exit=True)  # by a thread, which a rank must not be forked with
        while not ranks.join():
            pass
        for number in range(RANKS):
            print((Path(folder) / f"said{number}").read_text(), end="")
            print("rank")
