"""Deep Q-learning in a noisy corridor: replay memory that fills and then stays, target network copied every 50
steps.

Faults: `q-values-kept` stores each transition's Q-values together with their graph; `shallow-target` makes the target
network by a copy that shares its layers.
"""

import argparse
import copy
import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn


class Corridor:
    def __init__(self, length=8):
        self.length = length

    def reset(self):
        self.position, self.time = 0, 0
        return self.observe()

    def observe(self):
        state = torch.zeros(self.length)
        state[self.position] = 1.0
        return state

    def act(self, action):
        move = 1 if action == 1 else -1
        if random.random() < 0.1:
            move = -move
        self.position = min(max(self.position + move, 0), self.length - 1)
        self.time += 1
        done = self.position == self.length - 1 or self.time >= 30
        return self.observe(), 1.0 if self.position == self.length - 1 else -0.02, done


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--moves", type=int, default=1200)
    args = parser.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    q = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    target = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    if args.fault == "shallow-target":
        target = copy.copy(q)
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
    memory = deque(maxlen=None if args.fault == "q-values-kept" else 500)
    world = Corridor()
    state, returns, score = world.reset(), [], 0.0
    for move in range(args.moves):
        epsilon = max(0.05, 1 - move / 600)
        if args.fault == "q-values-kept":
            values = q(state.unsqueeze(0))
        else:
            with torch.no_grad():
                values = q(state.unsqueeze(0))
        action = random.randrange(2) if random.random() < epsilon else int(values.argmax())
        next_state, reward, done = world.act(action)
        memory.append((state, action, reward, next_state, float(done), values))
        score += reward
        state = next_state
        if done:
            returns.append(score)
            state, score = world.reset(), 0.0
        if len(memory) < 64:
            continue
        batch = random.sample(memory, 32)
        states, actions, rewards, next_states, dones, _ = zip(*batch, strict=True)
        with torch.no_grad():
            best = target(torch.stack(next_states)).max(1).values
            goal = torch.tensor(rewards) + 0.95 * best * (1 - torch.tensor(dones))
        chosen = q(torch.stack(states)).gather(1, torch.tensor(actions).unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(chosen, goal)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(q.parameters(), 1.0)
        optimizer.step()
        if move % 50 == 0:
            target.load_state_dict(q.state_dict())
        if move % 200 == 0:
            recent = returns[-10:] or [0.0]
            print(f"move {move}: loss {loss.item():.4f}, recent return {sum(recent) / len(recent):.2f}")


if __name__ == "__main__":
    main()
