"""Server optimisers, slow and plain: what Flower's must do with the change of each version."""

from typing import Any

import numpy as np


class Optimiser:
    """Server optimisers as in their papers, with Flower's learning rates and numbers of rounds; FedAvg has none."""

    def __init__(self, kind: str) -> None:
        self.kind, self.round = kind, 0
        self.x: Any = 0.0
        self.m: Any = 0.0
        self.v: Any = 0.0

    def move(self, change: Any) -> None:
        self.round += 1
        beta_1, beta_2, eta, tau = 0.9, 0.99, 0.1, 1e-3
        if self.kind == "FedAvg":
            self.x = self.x + change
            return
        if self.kind == "FedAvgM":
            self.m = 0.5 * self.m + change
            self.x = self.x + 0.7 * self.m
            return
        self.m = beta_1 * self.m + (1 - beta_1) * change
        if self.kind == "FedYogi":
            self.v = self.v - (1 - beta_2) * change**2 * np.sign(self.v - change**2)
            self.x = self.x + 0.01 * self.m / (np.sqrt(self.v) + tau)
            return
        self.v = beta_2 * self.v + (1 - beta_2) * change**2
        eta *= np.sqrt(1 - beta_2 ** (self.round + 1.0)) / (1 - beta_1 ** (self.round + 1.0))
        self.x = self.x + eta * self.m / (np.sqrt(self.v) + tau)
