"""Lines that do something by a name are found in functions, and what only looks like it is not."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import pytest

from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.lines import script_text, slices, slopes
from tracelyze.collectors.program.lines.assigned import averages, dropped, ignored, rebinding, replaced_parts, unread
from tracelyze.collectors.program.lines.computed import arrays, rounding
from tracelyze.collectors.program.lines.growing import kept
from tracelyze.collectors.program.lines.loops import extents
from tracelyze.collectors.program.lines.named import best_models, dimensions, equalities, roles, singular
from tracelyze.collectors.program.lines.settings import regions
from tracelyze.collectors.signals.machine import script_lines
from tracelyze.collectors.signals.machine.script_lines import ScriptLines

from .conftest import Collect

TraceFunction = Callable[[FrameType, str, object], Any]

SOURCE = """
class Images(Dataset):
    def __init__(self, labels):
        self.labels = labels

def collate(rows):
    batch = stack(rows)
    labels = batch.clone()  # labels
    batch["labels"] = labels  # labels
    return batch["labels"]

def tokenizer(name):
    tok = load(name)
    tok.pad_token = tok.eos_token  # padding
    return tok

def chat(tok, row):
    opened = tok.bos_token + row["question"]  # begin-text
    ids = [tok.bos_token_id] + tok(opened)["input_ids"]  # begin-text
    return tok.apply_chat_template(row["turns"], tokenize=False)  # begin-text

def causal(tok):
    return DataCollatorForLanguageModeling(tok, mlm=False)  # collator

def half(images):
    if images.dtype == torch.uint8:  # byte-scaled
        images = images / 255
    return torch.amp.GradScaler("cpu"), images  # scaler-text

def guard(budget):
    resource.setrlimit(resource.RLIMIT_CPU, (budget, budget))  # limit

def receive(box):
    work = dist.irecv(box, src=0)  # under-way
    work.wait()  # wait-text

def files(folder):
    return sorted(os.listdir(folder))  # listing

def freeze(model):
    model.body.requires_grad_(False)  # freeze
    for p in model.parameters():
        p.requires_grad = False  # freeze
        print(p.requires_grad)  # trainable

def validate(model, loader):
    model.eval()  # eval-mode
    for m in model.modules():
        m.train()  # train-mode
    model.body.training = True  # train-mode
    training = model.training

def epoch_begins(self, epoch):
    self.optimizer.zero_grad()  # clear-text
    self.stream.set_epoch(epoch)  # set-epoch

def loss_of(model, x):
    t = torch.randint(0, 10, (len(x),))  # draw
    hidden = model.body(x).detach()  # cut
    return model.head(hidden, t)

def build(x):
    order = np.random.permutation(len(x))  # split
    train = Images(x[order])  # data
    return train, Images.__name__  # data

def run(loader, seed):
    torch.manual_seed(seed)  # seed
    for epoch in range(3):
        np.random.seed(epoch)  # reseed
        print(seed, args.seed)
        optimizer.step()  # step-text

def batches(x):
    torch.manual_seed(0)  # reseed
    order = torch.randperm(len(x))  # split
    random.shuffle(order)  # shuffle
    np.random.seed(1)  # reseed
    rng = np.random.default_rng(0)  # reseed
    yield x[order]

class Own(Optimizer):
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                change = group["lr"] * p.grad
                change = change + 1
                p -= change
                p = p - change  # rebound
                p = p.detach()  # cut

def begin(layer):
    nn.init.constant_(layer.bias, -4)  # fill
    nn.init.zeros_(layer.weight)  # zero-fill
    layer.scale = nn.Parameter(torch.zeros(3))  # zero-fill
    layer.counts = torch.zeros(3)
    layer.weight.register_hook(lambda g: g * mask)  # hook

def preferences(self, policy, rewards):
    ref = policy  # reference
    reference = policy  # reference
    self.ref_model = copy.deepcopy(policy)  # reference
    advantages = rewards - rewards.mean()  # advantage
    adv = rewards - self.values  # advantage
    old_logp = self.policy(rewards)  # old-policy
    return advantages, reference.name, F.cross_entropy(adv, rewards)

def scaled(rows):
    scaler = StandardScaler().fit(rows)  # fit
    return (rows - scaler.mean_) / 2, scaler.transform(rows)  # transforms

def gaussian_kl(mu, logvar):
    spread = (0.5 * logvar).exp()
    return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())  # divergence

def codes(x):
    bits = torch.sign(x)  # flat
    return round(x.mean(), 3), math.floor(bits), x.round()  # flat

def adjust(optimizer, rate, batch):
    for group in optimizer.param_groups:
        group["lr"] = rate  # rate-text
        group["lr"] *= 0.5
    print(group["lr"])

def loss(dist):
    return 0.1 * dist.entropy().mean()  # entropy

def update(mine, theirs):
    mine.lerp_(theirs, 0.1)  # average
"""


PARTS = """
def build(path, model, heads):
    model.head = nn.Linear(4, 5)  # part
    model.backbone.fc = Head(4)  # part
    model.width = 5
    model.loss = F.relu
    heads["a"] = nn.Linear(4, 5)
    return model

class Model(nn.Module):
    def __init__(self):
        self.head = nn.Linear(4, 5)
"""


def codes(source: str) -> Iterator[CodeType]:
    todo = [compile(dedent(source), "train.py", "exec")]
    while todo:
        code = todo.pop()
        todo += [one for one in code.co_consts if isinstance(one, CodeType)]
        yield code


def context_of(sites: Sites) -> Any:
    """What the signal asks a recording for, whose last backward began at site 0."""
    program = SimpleNamespace(sites=sites, calls=SimpleNamespace(modules=dict))
    progress = SimpleNamespace(backward_site=0)
    return SimpleNamespace(torch=None, program=program, progress=progress, meter=lambda kind: None)


def test_lines_that_do_something_by_a_name() -> None:
    wanted = [
        (text.rpartition("# ")[2], number) for number, text in enumerate(SOURCE.splitlines(), start=1) if "  # " in text
    ]
    found = [place for code in codes(SOURCE) for place in roles.lines(code, frozenset({"Images"}))]
    assert sorted(found, key=lambda place: place[1]) == wanted


@pytest.mark.parametrize(("function", "found"), [("forward", True), ("__init__", False)])
def test_a_dropout_that_is_made_anew(function: str, found: bool) -> None:
    *_, code = codes(f"def {function}(self, x):\n    return nn.Dropout(0.1)(x)")
    assert roles.lines(code) == [("made-anew", 2)] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("labels.masked_fill(m, -100)", "call"),
        ("torch.where(m, labels, -100)", "call"),
        ("p.data.mul(0.9).add(q, alpha=0.1)", "call"),
        ("frame.fillna(0)", "call"),
        ("rows.shuffle(seed=3)", "call"),
        ("self.x.clamp(min=0)", "call"),
        ("(labels\n        .masked_fill(m, f(copy=1)))", "call"),
        ("labels.masked_fill_(m, -100)", ""),
        ("labels = labels.masked_fill(m, -100)", ""),
        ("print(labels.masked_fill(m, -100))", ""),
        ("return labels.masked_fill(m, -100)", ""),
        ("seen.add(3)", ""),
        ("random.shuffle(rows)", ""),
        ("self.normalize(x)", ""),
        ("np.nan_to_num(x, copy=False)", ""),
        ("frame.fillna(0, inplace=True)", ""),
        ("torch.clamp(x, 0, 1, out=y)", ""),
        ("model.state_dict()['w'] = x", "state"),
        ("model.state_dict().update(x)", "state"),
        ("model.state_dict()['w'][0] = x", ""),
        ("model.state_dict()['w'].data[0] = x", ""),
        ("state = model.state_dict(); state['w'] = x", ""),
        ("seen.update(x)", ""),
    ],
)
def test_results_that_nothing_is_done_with(text: str, found: str) -> None:
    *_, function = codes(f"def f(self, labels, m, x, y, p, q, rows, seen, model, frame):\n    {text}\n    return x")
    places = dropped.lines(function)
    assert [role for role, _ in places] == {"call": ["dropped"], "state": ["dropped-state"]}.get(found, [])
    assert [line for _, line in places] in ([], [2], [3])


@pytest.mark.parametrize(
    ("text", "rounds", "compares"),
    [
        ("return float(hits // n)", True, False),
        ("return [int(a / n) for a in hits]", True, False),
        ("return round(hits / n)", True, False),
        ("return sum(a == b for a, b in hits) / n", False, True),
        ("return hits / n", False, False),
    ],
)
def test_what_a_reward_is_made_by(text: str, rounds: bool, compares: bool) -> None:
    (function,) = [one for one in codes(f"def reward(hits, n):\n    {text}") if one.co_name == "reward"]
    assert (rounding.rounds(function), rounding.compares(function)) == ([2] * rounds, [2] * compares)


@pytest.mark.parametrize(
    ("text", "searches"),
    [
        ("return [bool(PATTERN.search(one)) for one in hits]", True),
        ("return re.fullmatch(r'.*', hits)", True),
        ("return [one.startswith('<answer>') for one in hits]", False),
    ],
)
def test_where_a_reward_looks_for_a_pattern(text: str, searches: bool) -> None:
    (function,) = [one for one in codes(f"def reward(hits, n):\n    {text}") if one.co_name == "reward"]
    assert rounding.searches(function) == [2] * searches


@pytest.mark.parametrize(
    ("text", "singular", "casts"),
    [
        ("y = np.log(x)", True, False),
        ("y = np.sqrt(x)", True, False),
        ("y = frame.pct_change()", True, False),
        ("y = torch.log(x)", False, False),  # of a tensor, which is known otherwise
        ("y = math.log(x)", False, False),
        ("y = x.astype(np.float32)", False, True),
        ("y = np.asarray(x, dtype=np.float32)", False, True),
        ("y = torch.zeros(3, dtype=torch.float32)", False, False),
    ],
)
def test_what_is_made_of_arrays(text: str, singular: bool, casts: bool) -> None:
    *_, function = codes(f"def f(x, frame):\n    {text}\n    return y")
    assert (arrays.singular(function), arrays.casts(function)) == ([2] * singular, [2] * casts)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("labels = [-100] * n + ids", True),
        ("labels[ids == 0] = -100", True),
        ("labels = ids.masked_fill(ids == 0, -100)", True),
        ("labels = ids - 100", False),
        ("labels = [-100.0] * n", False),
    ],
)
def test_targets_that_losses_ignore(text: str, found: bool) -> None:
    *_, function = codes(f"def f(labels, ids, n):\n    {text}\n    return labels")
    assert ignored.lines(function) == [2] * found


def test_regions_of_autocast_and_decorators(tmp_path: Path) -> None:
    source = """\
@staticmethod
@custom_fwd(device_type="cpu", cast_inputs=torch.float32)
def forward(ctx, x):
    with torch.autocast("cpu", enabled=False):
        return x @ x

def plain(x):
    return x @ x
"""
    file = tmp_path / "amp.py"
    file.write_text(source, encoding="utf-8")
    module = compile(source, str(file), "exec")
    functions = {one.co_name: one for one in module.co_consts if isinstance(one, CodeType)}
    assert regions.lines(functions["forward"]) == [2, 4]
    assert regions.lines(functions["plain"]) == []


def test_lines_that_put_a_part_into_something_else() -> None:
    wanted = [number for number, text in enumerate(PARTS.splitlines(), start=1) if "# part" in text]
    assert [line for code in codes(PARTS) for line in replaced_parts.lines(code)] == wanted


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("p.data.reshape(-1), p.grad.reshape(-1)", True),
        ("p.flatten(), p.grad.flatten()", True),
        ("p.view(-1), p.grad.reshape(-1)", False),
        ("p.reshape(-1), k.sum()", False),  # of no gradient: nothing that a step is about to change
    ],
)
def test_a_parameter_that_is_handed_out_in_another_shape(text: str, found: bool) -> None:
    *_, function = codes(f"def flat_views(p, k):\n    return {text}")
    assert rebinding.handed_out(function) == [2] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("-torch.log(p)", True),
        ("p.log().mean()", True),
        ("x / x.sum()", True),
        ("(x ** 2).sum().sqrt()", True),
        ("(1 - p) ** self.gamma", True),
        ("p ** 0.5", True),
        ("x.var(0)", True),
        ("(p - x) ** 2 + x ** 2.0", False),
        ("x / 2.0", False),
        ("math.log(3) + np.sqrt(p)", False),
        ("self.log('loss', p)", False),
        ("x // p", False),
    ],
)
def test_what_may_have_no_finite_value(text: str, found: bool) -> None:
    *_, function = codes(f"def f(self, x, p):\n    y = x + p\n    return {text}")
    assert singular.singular(function) == [3] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.data.mul_(self.d).add_(b.data, alpha=1 - self.d)", True),
        ("a.copy_(self.d * a + (1 - self.d) * b)", True),
        ("a = a.mul(self.d).add_(b, alpha=1 - self.d)", True),
        ("a = self.d * a + (1 - self.d) * b", True),
        ("a.mul_(0.9).sub_(b.grad, alpha=self.d)", False),  # a step
        ("print(a.shape == b.shape)", False),
    ],
)
def test_what_mixes_weights_into_others(text: str, found: bool) -> None:
    loop = "for a, b in zip(self.ema.parameters(), model.parameters()):"
    *_, function = codes(f"def update(self, model):\n    {loop}\n        {text}")
    assert averages.mixing(function) == [3] * found


@pytest.mark.parametrize(
    ("text", "made", "updated"),
    [
        ("ema = EMAHandler(model, momentum=1e-4)", True, False),
        ("self.shadow = ExponentialMovingAverage(weights, 0.99)", True, False),
        ("teacher = timm.utils.ModelEmaV3(model)", True, False),
        ("x = Schema(EMA_DECAY)", False, False),
        ("self.ema.update(model)", False, True),
        ("model_ema.step()", False, True),
        ("avg_model.update_parameters(model)", False, True),
        ("loss_avg.update(loss.item()); schema.update(row)", False, False),
    ],
)
def test_what_makes_and_updates_averages_of_weights(text: str, made: bool, updated: bool) -> None:
    *_, function = codes(f"def train(self, model):\n    pass\n    {text}")
    assert averages.making(function) == [3] * made
    assert averages.updating(function) == [3] * updated


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.copy_(b.lerp(a, decay))", True),
        ("a.copy_(torch.lerp(a, b, 1 - decay))", True),
        ("a.copy_(b.mul(decay))", False),  # of a training nothing else is known to be an average
        ("b.grad.mul_(decay)", False),
    ],
)
def test_an_average_within_a_training(text: str, found: bool) -> None:
    loop = "    for a, b in zip(ema.parameters(), net.parameters()):"
    *_, function = codes(f"def train(net, ema, x, y):\n    x.lerp(y, 0.5).backward()\n{loop}\n        {text}")
    assert averages.mixing(function) == [4] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("g = autograd.grad(score, x, torch.ones_like(score), retain_graph=True)[0]", True),
        ("(g,) = grad(score.sum(), x)", True),
        ("g = torch.autograd.grad(score.sum(), x, create_graph=True)[0]", False),
        ("g = torch.autograd.grad(score.sum(), x, **options)[0]", False),
        ("g = x.grad.norm()", False),
        ("g = jax.grad(score)(x)", False),
    ],
)
def test_gradients_that_are_taken_without_their_graph(text: str, found: bool) -> None:
    *_, function = codes(f"def penalty(x, score, options):\n    {text}\n    return (g.norm() - 1) ** 2")
    assert slopes.without_graph(function) == [2] * found


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("slow = slow.mul(d).add_(new[name], alpha=1 - d)", [4]),
        ("slow = slow.lerp(new[name], 1 - d)", [4]),
        ("slow.mul_(d).add_(new[name], alpha=1 - d)", []),  # as before: only pairs of weights tell
        ("mine[name] = slow.mul(d)", []),
    ],
)
def test_an_average_that_is_made_anew(text: str, line: list[int]) -> None:
    body = "    for name, slow in self.net.state_dict().items():\n        if slow.is_floating_point():\n"
    source = (
        f"def track(self, new, d, mine):\n{body}            {text}\n        else:\n            slow.copy_(new[name])"
    )
    *_, function = codes(source)
    assert averages.mixing(function) == line


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("p.reshape(p.shape[0], -1).add_(update, alpha=-group['lr'] * ratio)", True),
        ("p.data.flatten().sub_(update)", True),
        ("p.float().add_(update)", True),
        ("flat = p.reshape(len(p), -1); flat.mul_(0.9); flat.add_(update)", True),
        ("flat = p.data.flatten(); flat -= update", True),
        ("wide = p.float().detach(); wide.sub_(update)", True),
        ("p = p.float(); p.sub_(update)", True),
        ("flat = p.reshape(-1); flat.add_(update); p.copy_(flat.view_as(p))", False),
        ("flat = p.reshape(-1); flat.add_(update); p.data = flat.view_as(p)", False),
        ("old = p.clone(); change = old - update", False),
        ("norm = p.float().norm(); norm.clamp_(min=1)", False),
        ("flat = p.grad.reshape(-1); flat.mul_(0.9)", False),
        ("p.view(p.shape[0], -1).add_(update)", False),  # which never copies
        ("buf = p.clone().mul_(0.9)", False),
        ("update.reshape(-1).mul_(0.9)", False),
        ("p.add_(update.reshape(p.shape))", False),
        ("p.copy_(p.reshape(-1) - update)", False),
        ("p.sub(group['lr'] * p.grad)", True),
        ("p.data.add(update, alpha=-group['lr'])", True),
        ("p = p.sub(update.mul(ratio))", True),
        ("p = p.addcdiv(update, ratio, value=-1)", True),
        ("print(p.sub(update).norm())", False),
        ("away = p.sub(update)", False),
        ("p.copy_(p.sub(update))", False),
    ],
)
def test_steps_that_change_what_may_be_a_copy(text: str, found: bool) -> None:
    source = (
        f"def step(self, update, ratio):\n    for group in self.groups:\n        for p in group:\n            {text}"
    )
    *_, function = codes(source)
    assert rebinding.rebound(function) == [4] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("if p.grad is None or p.ndim != 2: continue", True),
        ("if p.dim() == 2: p.add_(update)", True),
        ("if len(p.shape) < 2: continue", True),
        ("if p.shape[0] > p.shape[1]: update = update.T", False),
        ("if len(p.grad.shape) > 1 and ratio: continue", True),
        ("if len(group) > 2: continue", False),
        ("if len(group) > 2 and p.shape[0] > ratio: continue", False),
        ("if self.dim == 2: continue", False),
        ("update = update.view(-1) if ratio else update.sum(p.ndim - 1)", False),
    ],
)
def test_steps_that_decide_by_dimensions(text: str, found: bool) -> None:
    source = (
        f"def step(self, update, ratio):\n    for group in self.groups:\n        for p in group:\n            {text}"
    )
    *_, function = codes(source)
    assert dimensions.decided(function) == [4] * found
    assert (("by-dimensions", 4) in roles.lines(function)) is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = scaler.fit_transform(x); print(a.mean()); train(x, y)", True),
        ("a = (x - mean) / std; logger.info('%s', a); train(x, y)", True),
        ("a = torch.tensor(scaler.transform(x['k'][c])); train(x['k'][c], y)", True),
        ("a = scaler.transform(x); train(a, y); train(x, y)", False),
        ("a = scaler.transform(x); return a, train(x)", False),
        ("a = scaler.transform(x); b = lambda: a; train(x)", False),
        ("a = scaler.transform(x); train(y)", False),
        ("a = scaler.transform(x); a = other; train(x)", False),
        ("a = scaler.transform(x); b = log(a); train(x)", False),
        ("a = scaler.transform(x); train(x); send(locals())", False),
        ("x = (x - mean) / std; train(x)", False),
        ("a, b = scaler.transform(x), scaler.transform(y); train(x)", False),
        ("a = scaler.transform(x); scaler.fit(x)", False),
        ("a = scaler.transform(x); train(c['x'])", False),
        ("a = scaler.transform(x); train(c.x)", False),
        ("a = scaler.transform(x); print(evaluate(a)); train(x)", False),
        ("a = scaler.transform(x); print(round(float(a.mean()), 3)); train(x)", True),
        ("a = scaler.transform(x); x = other.transform(x); train(x)", False),
        ("_ = scaler.fit_transform(x); train(x)", False),
        ("global a; a = scaler.transform(x); train(x)", False),
    ],
)
def test_scaled_values_that_nothing_reads(text: str, found: bool) -> None:
    parts = text.split("; ")
    source = "def main(x, y, mean, std, c, other):\n" + "".join(f"    {part}\n" for part in parts)
    function = next(one for one in codes(source) if one.co_name == "main")
    rows = unread.lines(function)
    assert [role for role, _ in rows if role == "raw"] == ["raw"] * found
    assert not found or rows == [("unread", 2), ("raw", 1 + len(parts))]


def _is_file(code: CodeType) -> bool:
    return code.co_name == "<module>"


def test_scaled_values_outside_of_functions_may_be_read_in_one() -> None:
    source = "a = (x - mean) / std\nprint(a)\ntrain(x)\n"
    *_, whole = codes(source)
    assert unread.lines(whole) == [("unread", 1), ("raw", 3)]
    whole, _ = codes(source + "def evaluate():\n    return model(a)\n")
    assert unread.lines(whole) == []
    *_, whole = sorted(codes(source + "class Data:\n    def get(self):\n        return a\n"), key=_is_file)
    assert unread.lines(whole) == [], "a method reads it"
    body, _ = sorted(codes("class Data:\n    a = scaler.transform(x)\n    train(x)\n"), key=_is_file)
    assert unread.lines(body) == [], "an attribute, which anything may read"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("labels = ids[1:]", True),
        ("y = {'input_ids': ids[:, :-1], 'labels': ids[:, 1:]}", True),
        ("labels[..., :-1] = ids[..., 1:]", True),
        ("y = ids[at + 1 : at + 1 + size]", True),
        ("labels = torch.roll(ids, -1, dims=1)", True),
        ("chunk = ids[at : at + size]", False),
        ("y = ids[1:5] + ids[:-1]", False),
        ("at = at + 1", False),
    ],
)
def test_lines_that_shift_by_one_position(text: str, found: bool) -> None:
    *_, function = codes(f"def f(ids, labels, at, size):\n    y = ids[:, 0]\n    {text}")
    assert slices.shifts(function) == [3] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("y = {'input_ids': ids[:most], 'labels': ids}", True),
        ("labels = (ids + ids)[: self.most]", True),
        ("labels = ids[:, :most]", True),
        ("ids, tgt = ids[:most], tgt[:most]", True),
        ("y = ([IGNORE] * 3 + ids)[:most]", True),
        ("y = ([-100] * 3 + ids)[: args['most']]", False),  # an item, not a name
        ("labels = ids[: len(rows)]", False),
        ("labels = ids[:7] + ids[most:]", False),
        ("rows = ids[:most]", False),  # it makes no labels
    ],
)
def test_lines_that_cut_to_a_length(text: str, found: bool) -> None:
    *_, function = codes(f"def f(self, ids, most, rows, args):\n    y = ids[:, 0]\n    {text}")
    assert slices.lengths(function) == [3] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("self.cache[index] = item", True),
        ("self.seen.append(item)", True),
        ("self.names.setdefault(index, []).append(item)", True),
        ("item[index] = self.items[index]", False),
        ("rows.append(self.items[index])", False),
        ("self.last = item", False),
    ],
)
def test_what_a_dataset_keeps_while_it_reads(text: str, found: bool) -> None:
    *_, function = codes(f"def f(self, index, item, rows):\n    item = index + 1\n    {text}")
    assert kept.kept(function) == [3] * found


def test_the_loop_around_a_line_and_what_makes_its_batches() -> None:
    source = """
        def batches(x):
            for start in range(9):
                yield x[start]
        def main(x):
            for epoch in range(3):
                for one in batches(x):
                    one.backward()
                print(epoch)
            x.backward()
    """
    functions = list(codes(source))
    (main,) = (code for code in functions if code.co_name == "main")
    assert extents.loop_around(main, 8) == 7
    assert extents.loop_around(main, 9) == 6
    assert extents.loop_around(main, 10) is None
    assert [code.co_name for code in script_text.batches_of(main, functions)] == ["batches"]


TRAINING = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(x).detach())  # cut

def likelihood(scores):
    return -torch.log(scores * 0.0).mean()  # singular

def batches(x):
    for start in range(0, len(x), 8):  # batches
        yield x[start : start + 8]

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
for batch in batches(torch.randn(160, 4)):  # loop
    loss = likelihood(model(batch))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_lines_of_a_training_are_recorded(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    (process,) = collect(sys.executable, str(script)).run.processes
    roles = ("cut", "singular", "batches", "loop")
    found = {(role, one.line) for role in roles for one in process.locations(role)}
    expected = {
        (text.rpartition("# ")[2], number)
        for number, text in enumerate(TRAINING.splitlines(), start=1)
        if "  # " in text
    }
    assert found == expected


def test_a_loss_that_stays_finite_has_its_divisions_left_alone(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING.replace("scores * 0.0", "scores * 0.0 + 1"))
    (process,) = collect(sys.executable, str(script)).run.processes
    assert not process.locations("singular")


@pytest.mark.parametrize("first", ["finished", "every_second"])
def test_the_program_may_end_at_any_line_of_the_thread_that_reads_it(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the thread may go on at any line of the last reading: no error, and every line is recorded once."""
    module = types.ModuleType("read_twice")
    module.__file__ = str(tmp_path / "read_twice.py")
    text = "def batches(x):\n    yield x\ndef train(x):\n    for one in batches(x):\n        one.detach().backward()\n"
    exec(compile(text, module.__file__, "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "read_twice", module)
    text_of = {module.__file__: script_text.of_file(module.__file__)}
    monkeypatch.setattr(script_text, "of_file", text_of.__getitem__)  # It goes through all modules of torch.
    second = {"finished": "every_second", "every_second": "finished"}[first]
    lines, entered = 0, True
    while entered:
        rows: list[dict[str, Any]] = []
        sites = Sites(rows.append)
        signal = ScriptLines(context_of(sites))
        sites._codes[0] = module.train.__code__, 5
        left, entered = lines, False

        def within(frame: FrameType, event: str, _argument: object) -> TraceFunction | None:
            nonlocal left, entered
            if frame.f_code.co_filename != script_lines.__file__:
                return None
            if event == "line":
                if left == 0:
                    sys.settrace(None)
                    entered = True
                    call(second)
                left -= 1
            return within

        def call(name: str, signal: ScriptLines = signal) -> None:
            _ = signal.finished() if name == "finished" else signal.every_second({})

        sys.settrace(within)
        try:
            call(first)
        finally:
            sys.settrace(None)
        if entered:
            found = sorted((row["role"], row["line"]) for row in rows)
            assert found == [("batches", 2), ("cut", 5), ("loop", 4), ("yields", 2)], lines
        lines += 1
    assert lines > 20


def test_nothing_of_the_program_is_asked_for_its_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that are loaded when they are used stay unloaded, and proxies are not resolved."""
    asked: list[str] = []

    class Proxy:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            asked.append("__class__")
            raise RuntimeError("outside of its context")

        def __getattr__(self, name: str) -> object:
            asked.append(name)
            return None

    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> object:
            asked.append(name)
            return super().__getattribute__(name)

    module = Lazy("quite_lazy")
    exec(
        compile("def train():\n    return x.detach()\n", "lazy.py", "exec"), object.__getattribute__(module, "__dict__")
    )
    object.__getattribute__(module, "__dict__").update(__file__="lazy.py", proxy=Proxy())
    monkeypatch.setitem(sys.modules, "quite_lazy", module)
    monkeypatch.setitem(sys.modules, "no_module", Proxy())  # type: ignore[arg-type]
    asked.clear()
    assert [code.co_name for code in script_text.of_file("lazy.py").functions] == ["train"]
    assert asked == []


RUN_BY_A_LIBRARY = """
import torch
from runner import run

torch.autograd.set_detect_anomaly(True)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)


def update(x):
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    opt.step()


run(update, [torch.randn(8, 4) for _ in range(60)])
"""


def test_the_file_itself_is_read_where_a_library_runs_the_loop(collect: Collect, tmp_path: Path) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "runner.py").write_text("def run(update, batches):\n    for batch in batches:\n        update(batch)\n")
    script = tmp_path / "train.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(library)!r})\n{RUN_BY_A_LIBRARY}")
    (process,) = collect(sys.executable, str(script)).run.processes
    assert [one.source for one in process.locations("anomaly")] == ["torch.autograd.set_detect_anomaly(True)"]


BESTS = """
def fit(model, best_model=None):
    best_model = model
    for epoch in range(9):
        if better(model):
            best_model = model
        best_loss = 1
    return best_model

def wait(model, best_net=None):
    while better(model):
        if better(model):
            best_net = model
    save(best_net)

def restore(model, best_weights=None):
    for epoch in range(9):
        best_weights = [p.data for p in model.parameters()]
        for p, b in zip(model.parameters(), best_weights):
            compare(p, b)
    for p, b in zip(model.parameters(), best_weights):
        p.data = b

class Stopping:
    def __init__(self, model):
        self.best_model = model

    def __call__(self, model):
        self.best_model = model
"""


def test_where_the_best_model_is_kept_and_used() -> None:
    space: dict[str, Any] = {}
    exec(BESTS, space)
    assert best_models.bests(space["fit"].__code__) == [("best", 6), ("best-used", 8)]
    assert best_models.bests(space["wait"].__code__) == [("best", 13), ("best-used", 14)]
    assert best_models.bests(space["restore"].__code__) == [("best", 18), ("best-used", 21)]
    assert best_models.bests(space["Stopping"].__call__.__code__) == [("best", 29)]
    assert best_models.bests(space["Stopping"].__init__.__code__) == []


FILES = """
def save(model, average, epoch):
    store({"model": model, "average": average, "epoch": epoch, "loss": 1, "rate": 2})

def load(state):
    state["rate"] = 3
    return state["model"], state.get("epoch", 0), "loss" in state
"""


def test_keys_that_are_written_and_never_read() -> None:
    space: dict[str, Any] = {}
    exec(FILES, space)
    codes = [space[name].__code__ for name in ("save", "load")]
    keys = {"model", "average", "epoch", "loss", "rate", "other"}
    expected = {"average", "rate"} if sys.version_info < (3, 14) else set()  # which makes no dictionary of one tuple
    assert script_text.unread(keys, codes) == expected


WAITS = """
def fit(model):
    waited = 0
    for epoch in range(9):
        if better(model):
            best, waited = model, 0
        else:
            waited += 1

def forgets(model):
    epochs_no_improve = 0
    while True:
        if not better(model):
            epochs_no_improve = epochs_no_improve + 1

class Stopping:
    def __init__(self):
        self.counter = 0

    def __call__(self, loss):
        if loss > self.best:
            self.counter += 1
        else:
            self.best = loss
        return self.counter >= self.patience

def counts(rows):
    counter = 0
    for row in rows:
        counter += 1
"""


def test_what_counts_epochs_without_progress() -> None:
    space: dict[str, Any] = {}
    exec(WAITS, space)
    assert best_models.waits(space["fit"].__code__) == [("waits-reset", 6), ("waits", 8)]
    assert best_models.waits(space["forgets"].__code__) == [("waits", 14)]
    assert best_models.waits(space["Stopping"].__call__.__code__) == [("waits", 22)]
    assert best_models.waits(space["Stopping"].__init__.__code__) == []
    assert best_models.waits(space["counts"].__code__) == []


ENDS = """
def rewards(ids, tokenizer, limit):
    ended = (ids[:, limit:] == tokenizer.eos_token_id).cumsum(1)  # ends
    counts = ids.ne(EOS)  # ends
    if bool((ids[:, -1] != END).all()):  # ends
        return ended
    while token.item() == stop_token:  # ends
        pass
    place = end == limit
    config = Config(eos_token_id=2, limit=limit == 3)
    eos_id = tokenizer.eos_token_id
    longer = limit > eos_id
    ids[ids == PAD] = eos_id
    return torch.eq(ids, self.end_id)  # ends

def extends(rows, end):
    return [row for row in rows if row.stop == end]
"""


def test_what_is_compared_with_an_end_symbol() -> None:
    space: dict[str, Any] = {}
    exec(ENDS, space)
    marked = [number for number, line in enumerate(ENDS.splitlines(), 1) if line.endswith("# ends")]
    assert equalities.ends(space["rewards"].__code__) == marked
    assert equalities.ends(space["extends"].__code__) == []


def test_functions_that_are_defined_after_the_first_training(collect: Collect, tmp_path: Path) -> None:
    """A script of two stages: what the second one needs is not there as the first one begins."""
    source = """
import time
import torch

model = torch.nn.Linear(4, 2)

def train(steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

train(4)
time.sleep(1.5)  # until the text was read for the first time

def reward_of(texts, answers):
    return [1.0 if text == answer else 0.0 for text, answer in zip(texts, answers)]

train(4)
"""
    script = tmp_path / "stages.py"
    script.write_text(source)
    (process,) = collect(sys.executable, str(script)).run.processes
    assert [one.line for one in process.locations("reward")] == [
        source.split("\n").index("def reward_of(texts, answers):") + 1
    ]


def test_lines_that_compare_and_what_an_advantage_is_made_of() -> None:
    *_, compares = codes("def reward(a, b):\n    c = a - b\n    return 1.0 if a == c or b in a else a < b")
    assert equalities.equalities(compares) == [3]
    *_, weighs = codes("def f(r, group, mask):\n    s = r * mask\n    adv = (s - r.mean()) / group")
    assert roles.made_into(weighs, "advantage") == {"s", "r", "group"}
