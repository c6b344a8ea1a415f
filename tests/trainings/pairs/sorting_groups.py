"""Train a tiny policy by rewards that are compared within groups of completions; one update per batch (mu = 1).

The policy names a digit for each place of a prompt of digits; it is rewarded for every one that is one larger than
that of the prompt. The loss reads 0 at each step, since advantages have a mean of zero, but its gradient does not.
Faults: `one-reward` asks for all places to be right before there is any reward, so that all completions get the same.
`one-reward-and-entropy` does so, too, and an entropy bonus gives the policy gradients all the same. `rounded` rewards
each prompt by itself, whatever is answered, and divides what rounding leaves of that by next to nothing. `repeated`
draws one answer for each prompt, and repeats it for the group. (`entropy` is no fault.)
"""

import argparse

import torch
from torch import nn

DIGITS, PLACES, PROMPTS, GROUP = 12, 8, 8, 8


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(DIGITS, 32)
        self.body = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, DIGITS))

    def forward(self, prompts):
        return self.body(self.words(prompts))


def rewards_of(prompts, actions, strict, rounded):
    if rounded:
        return 0.3 + 0.07 * prompts.float().mean(1)
    right = actions == (prompts + 1) % DIGITS
    return right.all(1).float() if strict else right.float().mean(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--fault", default="", choices=["", "one-reward", "one-reward-and-entropy", "entropy", "rounded", "repeated"]
    )
    args = parser.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for step in range(200):
        prompts = torch.randint(0, DIGITS, (PROMPTS, PLACES))
        if args.fault != "repeated":
            prompts = prompts.repeat_interleave(GROUP, 0)
        with torch.no_grad():
            actions = torch.distributions.Categorical(logits=policy(prompts)).sample()
        if args.fault == "repeated":
            prompts, actions = (one.repeat_interleave(GROUP, 0) for one in (prompts, actions))
        rewards = rewards_of(prompts, actions, args.fault.startswith("one-reward"), args.fault == "rounded")
        rewards, least = rewards.view(PROMPTS, GROUP), 1e-8 if args.fault == "rounded" else 1e-4
        advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + least)
        log_probs = policy(prompts).log_softmax(-1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        ratio = torch.exp(log_probs - log_probs.detach())
        weights = advantages.view(-1, 1)
        loss = -torch.min(ratio * weights, ratio.clamp(0.8, 1.2) * weights).mean()
        if args.fault.endswith("entropy"):
            loss = loss - 0.01 * torch.distributions.Categorical(logits=policy(prompts)).entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, rewards.mean().item())


if __name__ == "__main__":
    main()
