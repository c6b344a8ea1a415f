"""Everything that takes a model apart: copies, TorchScript, tracing, export, fx, functional calls, compilation."""

import copy
import io
import pickle

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(F.dropout(self.drop(torch.relu(self.first(x))), 0.1, self.training))


def loss_of(output, target):
    return F.cross_entropy(output, target)


torch.manual_seed(0)
torch.set_num_threads(1)
model = Net()
x, y = torch.randn(5, 8), torch.randint(0, 4, (5,))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_of(model(x), y).backward()
optimizer.step()

for function, arguments in ((model, (x,)), (lambda a, b: loss_of(model(a), b), (x, y))):
    torch._dynamo.reset()
    explained = torch._dynamo.explain(function)(*arguments)
    print("graphs", explained.graph_count, "breaks", explained.graph_break_count)

print("script", torch.jit.script(model)(x).shape, float(torch.jit.script(loss_of)(model(x), y).detach()))
print("trace", [node.kind() for node in torch.jit.trace(model.eval(), x).graph.nodes()])
print("export", [str(node.target) for node in torch.export.export(model, (x,)).graph.nodes])
print("fx", [node.op for node in torch.fx.symbolic_trace(model).graph.nodes])
parameters = dict(model.named_parameters())
slopes = grad(lambda p: loss_of(functional_call(model, p, (x,)), y))(parameters)
print("func", float(slopes["first.weight"].sum()))
one = grad(lambda p, a, b: loss_of(functional_call(model, p, (a[None],)), b[None]))
print("vmap", float(vmap(one, (None, 0, 0))(parameters, x, y)["first.weight"].sum()))


def whole_step(a, b):
    optimizer.zero_grad()
    loss = loss_of(model(a), b)
    loss.backward()
    optimizer.step()
    return loss.detach()


def reading(a, b):
    out = model(a)
    if float(out.detach().sum()) > 0:
        out = out + 1
    scale = out.detach().abs().max().item()
    if (out.detach() > scale).any():
        out = out * 2
    return F.cross_entropy(out, b) + sum(out.detach().flatten().tolist())


compilable = {"forward": lambda a, b: loss_of(model(a), b), "reading": reading, "whole step": whole_step}
for name, function in compilable.items():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(function, backend="eager")
    for _ in range(6):
        result = compiled(x, y)
    counters = torch._dynamo.utils.counters
    print(name, float(result.detach()), dict(counters["stats"]), sum(counters["graph_break"].values()))

buffer = io.BytesIO()
torch.save({"model": model, "optimizer": optimizer.state_dict()}, buffer)
ours = [b"tracelyze" in buffer.getvalue(), b"tracelyze" in pickle.dumps(model)]
print("saved", ours, type(copy.deepcopy(model)).__name__)
