"""Which names that a program logs under are measures of reinforcement learning: collectors keep these, rules read them.

Libraries have names of their own, which are listed; scripts have thousands, which are recognised by their last words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_BEFORE: Final = "((mean|avg|average|median|episode|episodic|ep|train|training|batch|step|total|env|rollout|running)_)*"
_AFTER: Final = "(_(mean|avg|average|total))?"
_BY_LAST_WORDS: Final[Mapping[str, re.Pattern[str]]] = {
    "reward": re.compile(f"{_BEFORE}(rlhf_)?(reward|rewards|rew|return|returns){_AFTER}"),
    "kl": re.compile(f"((mean|avg|average|policy|token|sequence)_)*kl(_(ref|reference|div|divergence))?{_AFTER}"),
    "entropy": re.compile(f"((mean|avg|average|policy|action|token)_)*entropy{_AFTER}"),
    "importance": re.compile("(importance_(sampling_)?ratio|policy_ratio)(_(mean|avg|average))?"),
}
PART_OF_REWARD: Final = re.compile("rewards/(?P<of>[^/]+)/mean")
"""What TRL calls the mean of one of several reward functions."""
_QUALIFIERS: Final = frozenset(("mean", "avg", "average", "total"))
_HELD_OUT: Final = frozenset(("eval", "evaluation", "val", "valid", "validation", "test"))


def recognised(name: str) -> str | None:
    """What a name stands for by its last words: "ppo/mean_reward" and "charts/episodic_return" are rewards. None for
    all others, and for what was measured in evaluation, which follows another policy; "part" for one of several rewards
    of whatever name."""
    words = [re.sub(r"[^a-z0-9]+", "_", part.lower()).strip("_") for part in re.split(r"[/.:]", name)]
    if _HELD_OUT.intersection(one for word in words for one in word.split("_")):
        return None
    last = "_".join(words[-2:]) if len(words) > 1 and words[-1] in _QUALIFIERS else words[-1]
    part = "part" if PART_OF_REWARD.fullmatch(name) else None
    return next((key for key, pattern in _BY_LAST_WORDS.items() if pattern.fullmatch(last)), part)
