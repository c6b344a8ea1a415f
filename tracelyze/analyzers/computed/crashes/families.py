"""The exceptions that PyTorch users meet again and again, in plain words, each with its usual fix."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """One well-known exception: `pattern` is searched in "class: message", `source` in the lines of the traceback."""

    name: str
    pattern: str
    title: str
    meaning: str
    fix: str
    fix_code: str = ""
    source: str = ""


BATCH_OF_ONE, BACKWARD_TWICE, SHAPES = "batchnorm-single-value", "backward-twice", "shape-mismatch"
CHANGED_IN_PLACE, NO_GRAPH = "inplace-modification", "no-grad-fn"
UNREDUCED, IDS = "unreduced-parameters", "id-out-of-range"
FAMILIES = (
    Family(
        BATCH_OF_ONE,
        r"Expected more than 1 value per channel when training",
        "BatchNorm got a batch of one sample",
        "BatchNorm in train mode computes statistics over the batch and cannot do so with a single value per channel.",
        "Drop the last incomplete batch of the training loader, or pick a batch size that leaves more than one sample.",
        "loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)",
    ),
    Family(
        BACKWARD_TWICE,
        r"Trying to backward through the graph a second time",
        "backward ran twice through the same graph",
        "A backward pass frees the graph that it walked. A later one reached into it again: usually a hidden state or "
        "a loss of an earlier step that is still attached, or a tensor computed once outside of the loop.",
        "Detach what is carried from step to step, and compute in each step what its loss depends on. "
        "retain_graph=True silences the error but keeps all graphs and makes memory grow.",
        "hidden = hidden.detach()",
    ),
    Family(
        CHANGED_IN_PLACE,
        r"modified by an inplace operation",
        "a tensor that backward needs was changed in place",
        "Backward needs a value as it was in the forward pass, but it was overwritten since: by an in-place operation "
        "(+=, relu_, x[i] = ...), or by an optimizer step between the forward and the backward, common in GANs.",
        "Replace the in-place operation by one that makes a new tensor; with several optimizers, run every backward "
        "before the first step, or repeat the forward after it. torch.autograd.set_detect_anomaly(True) names the "
        "operation.",
        "x = x + y  # in place of x += y",
    ),
    Family(
        "leaf-inplace",
        r"a leaf Variable that requires grad.*in-?place",
        "a parameter was changed in place while autograd was recording",
        "Parameters may be changed only where autograd does not record.",
        "Wrap manual updates and initialisation in torch.no_grad().",
        "with torch.no_grad():\n    weight -= lr * weight.grad",
    ),
    Family(
        "non-scalar-backward",
        r"grad can be implicitly created only for scalar outputs",
        "backward was called on something that is not a single number",
        "backward() without arguments needs one number. The loss has several elements: reduction='none', or several "
        "GPUs' losses side by side.",
        "Reduce the loss first.",
        "loss.mean().backward()",
    ),
    Family(
        NO_GRAPH,
        r"does not require grad and does not have a grad_fn",
        "the loss is not connected to any parameter",
        "Something cut the loss off from the model, such as argmax or another operation without a gradient, .item(), "
        ".detach(), .data or numpy on the way, torch.no_grad() around the forward, parameters that are all frozen, or "
        "reentrant checkpointing (use_reentrant=True) of layers whose inputs need no gradient.",
        "Compute the loss from the model's raw outputs, as tensors, with autograd on.",
        "# right above the backward: where both are True, something in between cuts the graph\n"
        "print(torch.is_grad_enabled(), any(p.requires_grad for p in model.parameters()))",
    ),
    Family(
        "grad-is-none",
        r"'NoneType' object has no attribute '(zero_|data|norm|clone|detach|mul_|add_|clamp_|abs|item)'",
        "a gradient is None",
        "The tensor got no gradient: it is not a leaf any more (w = w - ... makes a new tensor), the loss does not "
        "depend on it, or backward did not run yet.",
        "Update in place under torch.no_grad(), and use a gradient only after backward and only if it is not None.",
        "with torch.no_grad():\n    w -= lr * w.grad  # in place of w = w - lr * w.grad",
        source=r"\.grad\b",
    ),
    Family(
        "grad-is-none-in-update",
        r"unsupported operand type.*NoneType",
        "a gradient is None",
        "The parameter got no gradient, so it cannot be used in an update: w = w - ... makes a new tensor that is no "
        "leaf any more, the loss does not depend on it, or backward did not run yet.",
        "Update in place under torch.no_grad(), so that the parameter stays the leaf that it is.",
        "with torch.no_grad():\n    w -= lr * w.grad  # in place of w = w - lr * w.grad",
        source=r"\.grad\b",
    ),
    Family(
        "scaler-without-update",
        r"unscale_\(\) (is being called after step|has already been called)|step\(\) has already been called since",
        "the loss scaler was not updated after the step before",
        "GradScaler expects unscale_ (at most once), step and update in every step, in this order.",
        "Call scaler.update() once after every scaler.step(optimizer).",
        "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\nscaler.step(optimizer)\nscaler.update()",
    ),
    Family(
        "scaler-without-step",
        r"No inf checks were recorded prior to update",
        "scaler.update() was called, and the scaler had made no step",
        "The gradients still hold the loss scale, and only scaler.step(optimizer) or scaler.unscale_(optimizer) "
        "divides them by it. Usually optimizer.step() is called in its place.",
        "Let the scaler make the step.",
        "scaler.scale(loss).backward()\nscaler.step(optimizer)  # in place of optimizer.step()\nscaler.update()",
    ),
    Family(
        "scaler-without-scale",
        r"Attempted step but _scale is None",
        "scaler.step() was called, and the scaler had scaled no loss",
        "GradScaler divides gradients by a scale that backward has to see first.",
        "Scale each loss for its backward.",
        "scaler.scale(loss).backward()  # in place of loss.backward()\nscaler.step(optimizer)\nscaler.update()",
    ),
    Family(
        "scaler-without-gradients",
        r"No inf checks were recorded for this optimizer",
        "the optimizer that scaler.step() was given has no gradient at all",
        "No backward since the last zero_grad reached one of its parameters: the loss depends on other ones (the model "
        "was made or moved anew, or is frozen), the backward is missing, or zero_grad came after it.",
        "Make the optimizer from the parameters of the model that computes the loss; clear gradients before backward.",
        "optimizer = torch.optim.AdamW(model.parameters(), lr=lr)  # of the model that is trained",
    ),
    Family(
        "fp16-weights-with-scaler",
        r"Attempting to unscale FP16 gradients",
        "a gradient scaler was given a model whose weights are float16",
        "GradScaler is for float32 weights whose forward runs in float16 by autocast. Here the weights themselves are "
        "float16 (.half(), torch_dtype=float16), and so are their gradients, which it refuses to divide.",
        "Load the trainable weights in float32 and let autocast choose, or train in bfloat16 without a scaler.",
        "model = model.float()  # below the line that makes or loads it; autocast then runs its forward in float16",
    ),
    Family(
        "marked-ready-twice",
        r"Expected to mark a variable ready only once",
        "a parameter took part twice in one backward of DistributedDataParallel",
        "DDP reduces each gradient once per backward. Usual causes: reentrant checkpointing, which runs a part of the "
        "backward on its own, of layers that are used several times; several forwards before one backward.",
        "Use checkpointing that is not reentrant, and find_unused_parameters=False.",
        "h = torch.utils.checkpoint.checkpoint(layer, h, use_reentrant=False)\n"
        "# of a model of transformers:\n"
        'model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})',
    ),
    Family(
        "unreduced-outputs",
        r"Expected to have finished reduction in the prior iteration.*`find_unused_parameters=True` is enabled",
        "the loss of the step before left out an output of the model",
        "DistributedDataParallel waits in each backward for the gradients of all parameters that an output of forward "
        "depends on, and the backward of the step before did not reach some of them.",
        "Let the loss use each output that forward computes, times 0 where it is not to count, and return outputs as "
        "tensors, tuples, lists or dicts, in which the wrapper finds them.",
        "loss = loss + 0.0 * output.sum()  # output: the one that the loss leaves out",
    ),
    Family(
        UNREDUCED,
        r"Expected to have finished reduction in the prior iteration",
        "the backward of the step before reached only a part of the parameters",
        "DistributedDataParallel waits in each backward for the gradients of all trainable parameters.",
        "Make the wrapper with find_unused_parameters=True: it then looks in each step which parameters the outputs of "
        "forward depend on, in tuples, lists and dicts, and waits for no others. A part that never trains should not "
        "be in the wrapped model, or be frozen before that is wrapped.",
        "model = DistributedDataParallel(model, find_unused_parameters=True)",
    ),
    Family(
        "weights-only",
        r"Weights only load failed|UnpicklingError.*weights_only",
        "torch.load refuses a file that holds more than tensors",
        "Since torch 2.6, torch.load reads tensors only by default: a pickle may run any code. The "
        "file holds objects of a class besides (a whole model, numpy scalars, an argparse namespace).",
        "Save state dicts, and load those. For a file that you trust, allow its classes, or load it as it is.",
        "torch.load(path, weights_only=False)   # only for a file that you trust",
    ),
    Family(
        "no-cuda-device",
        r"No CUDA GPUs are available|Torch not compiled with CUDA enabled|Found no NVIDIA driver|no NVIDIA GPU"
        r"|Attempting to deserialize object on a CUDA device|torch\.cuda\.is_available\(\) is False",
        "the program asks for a GPU, and torch sees none",
        "No driver, no device that is visible to this process (CUDA_VISIBLE_DEVICES, the scheduler's request), or a "
        "torch that was built for the CPU.",
        "Compare nvidia-smi, CUDA_VISIBLE_DEVICES and torch.version.cuda; write code that takes what there is.",
        'device = "cuda" if torch.cuda.is_available() else "cpu"\nstate = torch.load(path, map_location=device)',
    ),
    Family(
        "device-mismatch",
        r"Expected all tensors to be on the same device|should be the same|is on (cpu|cuda).*expected|but got "
        r"(cpu|cuda)",
        "tensors are on different devices or of different types",
        "One operand lives on another device, or has another dtype, than the other: a batch that was not moved, a "
        "tensor made inside of forward() on the CPU, or a model that was moved after its optimizer was made.",
        "Move model, inputs and targets to one device, and make new tensors with the device of their neighbours.",
        "x, y = x.to(device), y.to(device)\nmask = torch.zeros(n, device=x.device, dtype=x.dtype)",
    ),
    Family(
        "dtype-mismatch",
        r"must have the same dtype|expected scalar type|expected m1 and m2 to have the same dtype|Found dtype \w+ "
        r"but expected"
        r"|not implemented for '(Long|Int|Bool|Half|Double|Char|Byte)'|can only be .*floating point",
        "tensors of different number types meet",
        "An operation got, for instance, float64 from numpy where float32 is expected, or integers where floats "
        "belong. Class targets of cross_entropy must be int64.",
        "Convert at the border, where the data become tensors.",
        "x = torch.as_tensor(array, dtype=torch.float32)\ny = y.long()",
    ),
    Family(  # above the sizes that do not match, which its message lists
        "state-dict",
        r"Error\(s\) in loading state_dict",
        "a checkpoint does not fit the model",
        "Names or shapes in the checkpoint differ from the model's: another architecture, or a prefix such as module. "
        "or _orig_mod. from a wrapper.",
        "Compare the keys that the message lists; strip the prefix, or build the model with the same settings.",
        "state = {key.removeprefix('module.'): value for key, value in state.items()}",
    ),
    Family(
        IDS,
        r"index out of range in self",
        "an embedding has no row for one of the ids that it got",
        "An id is negative, or not below the embedding's num_embeddings.",
        "Find the id that is too large: a token added to the tokenizer, a padding id, an id counted from 1, a code of "
        "a column whose codes have gaps. Then make the embedding larger, or the ids smaller: it needs as many rows as "
        "the largest id plus 1, which may be more than there are different ids.",
        "assert 0 <= ids.min() and ids.max() < embedding.num_embeddings, ids.max()",
        source=r"\A(?!(?s:.*)\bindex_select\b)",  # which says the same of rows that are no embedding's
    ),
    Family(
        "label-out-of-range",
        r"Target -?\d+ is out of bounds|t >= 0 && t < n_classes",
        "a class label is not one of the model's classes",
        "A label lies outside of 0 .. classes - 1.",
        "Compare the smallest and the largest label with the size of the last layer. Labels start at 0.",
        "assert 0 <= y.min() and y.max() < num_classes",
    ),
    Family(
        SHAPES,
        r"shapes cannot be multiplied|must match the size of tensor|size mismatch|Sizes of tensors must match"
        r"|shape '.*' is invalid for input|Expected input batch_size|The size of tensor|expected input\[.*\] to have"
        r"|stack expects each tensor to be equal size|Expected hidden|input\.size\(-1\) must be equal to",
        "two tensors do not fit together",
        "A layer got another size than it was built for, or two tensors cannot be combined. The message names both "
        "shapes.",
        "Print the shapes right before the named line. If only the last batch fails, it is smaller than the others.",
        "print(x.shape, y.shape)",
    ),
    Family(
        "cuda-error",
        r"CUDA error|device-side assert|CUBLAS_STATUS|CUDNN_STATUS|HIP error",
        "the device reported an error",
        "Device work runs later than it is asked for, so the named line may not be the culprit. Device-side asserts "
        "are mostly labels or indices out of range.",
        "Run again with CUDA_LAUNCH_BLOCKING=1 to get the right line, or on the CPU to get a clearer message.",
        "CUDA_LAUNCH_BLOCKING=1 python train.py",
    ),
    Family(
        "worker-killed",
        r"DataLoader worker .*(killed by signal|exited unexpectedly)|insufficient shared memory|unable to open "
        r"shared memory",
        "a data loading worker was killed",
        "The system ended a worker process: host memory or shared memory ran out, or native code in the dataset "
        "crashed.",
        "Use fewer workers or a smaller prefetch_factor, enlarge shared memory (docker --shm-size), or set "
        "num_workers=0 once to see the error itself.",
        "DataLoader(dataset, num_workers=0)",
    ),
    Family(
        "start-method",
        r"An attempt has been made to start a new process before|Cannot re-initialize CUDA in forked subprocess",
        "worker processes were started in the wrong way",
        "Worker processes import the script again (spawn), or inherit an initialised CUDA (fork).",
        "Put the training under a main guard, and do not touch the device in the dataset.",
        'if __name__ == "__main__":\n    main()',
    ),
    Family(
        "collective-timeout",
        r"Watchdog caught collective operation timeout|ncclInternalError|ncclSystemError|NCCL error"
        r"|^(?:builtins\.)?(?:RuntimeError|torch\.distributed\.\w+|Dist\w+): [^\n]*Connection (?:reset|closed) by peer"
        r"|Timed out waiting \d+ ?ms|waiting for clients|DistStoreError|ProcessGroup.*(timeout|timed out)",
        "a collective between ranks timed out or broke",
        "One rank did not arrive at a collective operation: it died, is far behind, or took another branch.",
        "Look at the other ranks first: the one that stopped or raised earlier is the cause.",
    ),
    Family(
        "worker-exception",
        r"",
        "the dataset could not load a sample",
        "It raised in a loading worker, whose own traceback is the last one.",
        "Load all samples once without the loader to see which ones are broken; repair them, or leave them out.",
        "for index in range(len(dataset)):\n    try:\n        dataset[index]\n"
        "    except Exception as error:\n        print(index, repr(error))  # the index of a broken sample",
        source=r"Caught \w+ in DataLoader worker process",
    ),
    Family(
        "file-not-found",
        r"FileNotFoundError|No such file or directory",
        "a file is missing",
        "The path does not exist on this machine or from this working directory.",
        "Check the path and the folder that the program was started in.",
    ),
    Family(
        "key-error",
        r"^(builtins\.)?KeyError",
        "a key is missing",
        "A dictionary, batch or configuration has no entry of that name.",
        "Print the keys that do exist right before the named line.",
    ),
)
