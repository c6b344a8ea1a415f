"""What numbers that are no longer finite follow from."""

from __future__ import annotations

from typing import Final

from tracelyze.analyzers.consequences.declaration import AT_ONCE, Consequence
from tracelyze.analyzers.consequences.shared import BLOWN_UP, STILL_SCALED

ROWS: Final = (
    Consequence("nonfinite-gradients", ("labels-all-ignored", "nonfinite-input"),
                "NaN in, NaN out: it spreads to all that is computed from it.", AT_ONCE),
    Consequence("nonfinite-gradients", BLOWN_UP, "Numbers that grow without bound overflow."),
    Consequence("nonfinite-gradients", ("fp16-without-scaler",), "float16 overflows above 65,504."),
    Consequence("nonfinite-gradients", ("scaler-misuse",), STILL_SCALED),
    Consequence("loss-nonfinite",
                ("labels-all-ignored", "nonfinite-input", "nonfinite-gradients", "nonfinite-activations"),
                "NaN in, NaN out: it spreads to all that is computed from it.", AT_ONCE),
    Consequence("loss-nonfinite", BLOWN_UP, "Numbers that grow without bound overflow."),
    Consequence("loss-nonfinite", ("fp16-overflow", "fp16-without-scaler"), "float16 overflows above 65,504."),
    Consequence("loss-nonfinite", ("scaler-misuse",), STILL_SCALED),
    Consequence("nonfinite-activations", ("labels-all-ignored", "nonfinite-input"),
                "NaN in, NaN out: it spreads to all that is computed from it.", AT_ONCE),
    Consequence("nonfinite-activations", ("exploding-gradients", "learning-rate-too-high"),
                "Numbers that grow without bound overflow."),
    Consequence("nonfinite-activations", ("fp16-overflow", "fp16-without-scaler"), "float16 overflows above 65,504."),
    Consequence("fp16-overflow", BLOWN_UP, "Numbers that grow without bound overflow."),
    Consequence("fp16-overflow", ("scaler-misuse",), "A loss scale that is never updated keeps overflowing."),
    Consequence("fp16-underflow", ("fp16-without-scaler", "scaler-misuse"),
                "Without a loss scale small gradients fall below the smallest float16."),
    Consequence("fp16-underflow", ("fp16-overflow",), "Each overflow halves the loss scale until they underflow."),
    Consequence("lost-updates", ("fp16-without-scaler",), "float16 rounds small updates away."),
)  # fmt: skip
