"""What a kernel does, from its name, or where that says nothing from the operator that launched it.

Kernels of two devices, or of two library versions, share no names; what they do is what can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

GEMM: Final = "GEMM"
OTHER: Final = "other"

_BY_NAME: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("attention", r"flash_(fwd|bwd|attn)|fmha|attention|flex_?attn|mem_eff|paged_?attn|_attn_(fwd|bwd)|\bsdpa"),
        ("optimizer", r"multi_tensor_apply|fused_?(adam|sgd|lamb|adagrad)|adamw?_?(functor|kernel)"),
        (
            "embedding",
            r"embedding|split_eb_|index_?(select|add|put|copy)|indexfunc|gather|scatter|_sparse_|bounds_check_indices",
        ),
        (
            "normalisation",
            (
                r"batch_?norm|layer_?norm|rms_?norm|group_?norm|instance_?norm|\bbn_(fw|bw)|::bn_|GammaBeta|"
                r"RowwiseMoments|miopenBatchNorm|SubTensorOpWithScalar1d.*norm"
            ),
        ),
        ("softmax", r"soft_?max|cross_entropy|nll_loss"),
        ("pooling", r"pool(ing)?[_d123]|pool_(forward|backward)|adaptive_?(avg|max)|upsample"),
        (
            "convolution",
            (
                r"conv(olve|olution)?[_123d]|\bconv|_conv\b|_conv_|grouped_conv|scudnn|hcudnn|winograd|[wd]grad|fprop|"
                r"im2col|col2im|igemm_(fwd|bwd|wrw)|miopen.*conv|implicit_gemm|implicit_con"
            ),
        ),
        (
            GEMM,
            (
                r"gemm|gemv|nvjet|^Cijk_|splitKreduce|matmul|batch_matmul|\bmm_kernel|triton_tem_.*_(mm|bmm|addmm)|^fc-|"
                r"cublas|hipblas|_bmm_|dot_kernel"
            ),
        ),
        ("sort and scan", r"radix_?sort|DeviceScan|merge_?sort|topk|sort_?(pairs|keys)|bitonic|DeviceReduceByKey"),
        ("reduction", r"reduce|reduction|triton_(red|per)_|vector_norm|min_dim_|max_dim_|welford|cunn_|argm(ax|in)"),
        (
            "elementwise",
            (
                r"elementwise|triton_poi_|CatArray|transpose|copy_kernel|_copy_|dropout|fill|activation|functor|"
                r"^(aten::)?(add|mul|sub|div|divide|sigmoid|tanh|relu|gelu|silu|exp|log\d*|sqrt|cat|where|clamp|to)\b|"
                r"scalePackedTensor|triton_"
            ),
        ),
    )
)
"""In this order: the first that matches. A convolution's kernels often say gemm, an attention's softmax."""

_BY_OPERATOR: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("attention", r"attention|sdpa"),
        ("optimizer", r"^Optimizer\.|_foreach_|_fused_(adam|sgd)"),
        ("embedding", r"embedding|index_select|index_put|gather|scatter"),
        ("normalisation", r"norm"),
        ("softmax", r"softmax|cross_entropy|nll_loss"),
        ("pooling", r"pool(?!ed)"),
        ("convolution", r"conv"),
        (GEMM, r"::(add|b|badd)?mm\b|addmm|bmm|matmul|linear|MmBackward|einsum|_scaled_mm"),
        ("reduction", r"::(sum|mean|max|min|norm|var|std|any|all|argmax|argmin)\b|SumBackward|MeanBackward"),
        ("elementwise", r"::(add|mul|sub|div|copy|fill|zero|cat|to|relu|gelu|silu|dropout|where|clone|contiguous)_?\b"),
    )
)


def class_of(name: str, operator: str = "") -> str:
    """What the computing kernel `name` does; `operator` is what launched it, empty where that is unknown."""
    return _first(_BY_NAME, name) or _first(_BY_OPERATOR, operator) or OTHER


def _first(table: Sequence[tuple[str, re.Pattern[str]]], text: str) -> str:
    return next((kind for kind, pattern in table if text and pattern.search(text)), "")
