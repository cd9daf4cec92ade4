"""A training loop of one's own in PyTorch: what one client does is written here, and nothing else.

fedpick compare -p uniform -p power-of-choice -p oort --data digits --trainer "examples/torch_loop.py:Loop(lr=0.1)"
"""

import torch
from torch import nn

from fedpick.learn import OwnTrainer


class Loop(OwnTrainer):
    """SGD with momentum on a small network; `batch`, `steps`, `metrics`, ... are settings that every trainer has."""

    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def first(self, seed):
        """The first weights, drawn from the seed."""
        torch.manual_seed(seed)
        for layer in (self.net[1], self.net[3]):
            layer.reset_parameters()
        return self.net.state_dict()

    def fit(self, weights, batches, lr, seed):
        """One client's training: its weights afterwards, and its mean loss."""
        self.net.load_state_dict({name: torch.as_tensor(each) for name, each in weights.items()})
        optimizer, total = torch.optim.SGD(self.net.parameters(), lr, momentum=0.5), 0.0
        for x, y in batches:
            loss = nn.functional.cross_entropy(self.net(torch.as_tensor(x)), torch.as_tensor(y).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / len(batches)
        return self.net.state_dict(), total

    def predict(self, weights, x):
        """A number for each label."""
        self.net.load_state_dict({name: torch.as_tensor(each) for name, each in weights.items()})
        return self.net(torch.as_tensor(x))
