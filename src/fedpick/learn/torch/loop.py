"""The backend of PyTorch: clients train one after another, each in a plain loop over its batches.

Between rounds a model is NumPy arrays in this process's memory: {"kept": vector, "weights": vector}, see
`fedpick.learn.torch.live`. Kept numbers have no part in norms, reports and what a server's optimiser does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedpick.core import rng as rngs
from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Dataset
from fedpick.learn.backend import LocalResults, LocalSGD, Params, Scores
from fedpick.learn.batches import Batches
from fedpick.learn.pixels import inputs_of
from fedpick.learn.torch.examples import Tensors, arranged, correct, place
from fedpick.learn.torch.live import Live, on_its_own
from fedpick.learn.torch.network import Network
from fedpick.learn.vectors import Vectors, each_of, total

__all__ = ["Loop", "Placed"]

CHUNK = 500  # examples scored at once


@dataclass(frozen=True, eq=False)
class Placed:
    """Examples that a backend scores."""

    backend: "Loop"
    tensors: Tensors
    stacks = True

    def launch(self, model: Network, params: Params, index: Ints, several: bool = False) -> Callable[[], Scores]:
        """The scores of these examples, computed at once."""
        rows = [self.backend.scores(one, self.tensors, index) for one in each_of(params, several)]
        loss, hits = (np.stack([row[i] for row in rows]) if several else rows[0][i] for i in (0, 1))
        return lambda: (loss, hits)


class Loop(Vectors):
    """Clients one after another.

    Args:
        network: that is trained.
        local: how.
        device: to compute on.
    """

    devices = 1

    def __init__(self, network: Network, local: LocalSGD, device: torch.device) -> None:
        self.network, self.local, self.device = network, local, device
        self.dtype = torch.float64 if local.precision == "float64" else torch.float32
        self.live = Live(network.module(0), self.dtype, device)
        self.shapes = self.live.shapes

    @property
    def kind(self) -> str:
        """What it computes on."""
        return "cpu" if self.device.type == "cpu" else f"{self.device}: {torch.cuda.get_device_name(self.device)}"

    # ---- models

    def init(self, model: Network, server: Any, seed: int) -> dict[str, Any]:
        """The first parameters and the server's state."""
        first = model.module(int(rngs.stream(seed, 0, "model").integers(2**31)))
        live = Live(first, self.dtype, torch.device("cpu"))
        params = {"kept": live.kept().numpy().copy(), "weights": live.weights.numpy().copy()}
        return {"params": params, "server": [] if server is None else server.init(params["weights"])}

    def module(self, params: Params) -> Any:
        """A new module with these weights, in evaluation mode."""
        live = Live(self.network.module(0), self.dtype, self.device)
        live.load(*(self._tensor(params[name]) for name in ("weights", "kept")))
        live.module.zero_grad()
        return live.module.eval()

    def load(self, params: Params) -> None:
        """Put these parameters into the module."""
        self.live.load(*(self._tensor(params[name]) for name in ("weights", "kept")))

    def _tensor(self, array: Any) -> torch.Tensor:
        return torch.tensor(np.asarray(array), dtype=self.dtype, device=self.device)

    # ---- training

    def place(self, dataset: Dataset, part: str) -> Placed:
        """The examples on the device."""
        return Placed(self, place(dataset, part, self.device))

    def train(
        self,
        model: Network,
        local: LocalSGD,
        examples: Placed,
        sent: Params,
        batches: Batches,
        owner: Any = None,
        added: Params | None = None,
    ) -> LocalResults:
        """Train a cohort; see `fedpick.learn.backend.Backend.train`."""
        clients = len(batches.steps)
        starts = {name: torch.atleast_2d(self._tensor(part)) for name, part in sent.items()}
        delta = {name: np.zeros((clients, part.shape[1]), self._numpy) for name, part in starts.items()}
        loss, norm = np.zeros(clients, self._numpy), np.zeros(clients, self._numpy)
        with on_its_own(self.device):
            step = self._optimizer()
            for c in np.flatnonzero(batches.steps).tolist():
                r = 0 if owner is None else int(owner[c])
                weights, kept = starts["weights"][r], starts["kept"][r]
                self.live.load(weights, kept)
                more = None if added is None else self._tensor(added["weights"][c])
                try:
                    loss[c] = self._fit(examples.tensors, batches, c, weights, step, more)
                except Exception as error:  # it is the user's code
                    raise self.network.failed("trained", error) from error
                with torch.no_grad():
                    moved = self.live.weights - weights
                    norm[c] = float(torch.linalg.vector_norm(moved))
                    delta["weights"][c] = moved.cpu().numpy()
                    if len(kept):
                        delta["kept"][c] = (self.live.kept() - kept).cpu().numpy()
        return LocalResults(delta, loss, norm)

    def _fit(
        self,
        tensors: Tensors,
        batches: Batches,
        c: int,
        sent: torch.Tensor,
        step: Callable[[float | None], None],
        more: torch.Tensor | None,
    ) -> float:
        """A client's steps; gives its mean loss over all examples seen."""
        live, local, steps = self.live, self.local, int(batches.steps[c])
        index = torch.as_tensor(batches.index[c, :steps].astype(np.int64), device=self.device)
        counts = batches.count[c, :steps].tolist()
        torch.manual_seed(int(batches.keys[c, 0]) << 32 | int(batches.keys[c, 1]))
        step(float(batches.lr[c]))  # a new client
        live.train(alone=False)
        total = torch.zeros((), dtype=self.dtype, device=self.device)
        for s, count in enumerate(counts):
            if live.normalises:
                live.train(alone=count == 1)
            x, y = tensors.batch(index[s, :count], self.dtype)
            each = self._losses(x, y)
            live.slopes.zero_()
            each.mean().backward()
            with torch.no_grad():
                total += each.detach().sum()
                if local.prox:
                    live.slopes.add_(live.weights - sent, alpha=local.prox)
                if more is not None:
                    live.slopes.add_(more)
                if local.clip is not None:
                    norm = torch.linalg.vector_norm(live.slopes)
                    live.slopes.mul_(torch.clamp(local.clip / (norm + 1e-6), max=1.0))
                step(None)
        return float(total) / max(sum(counts), 1)

    def _losses(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self.local.precision == "bfloat16":
            with torch.autocast(self.device.type, torch.bfloat16):
                outputs = self.live.module(x)
            return self.network.losses(outputs.to(torch.float32), y)
        return self.network.losses(self.live.module(x), y)

    def _optimizer(self) -> Callable[[float | None], None]:
        """What takes a step from the slopes; called with a learning rate, it forgets what it kept of another client."""
        live, local = self.live, self.local
        if local.optimizer != "sgd":
            kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
            adam = kinds[local.optimizer]([live.weights], lr=1.0, weight_decay=local.weight_decay)

            def adaptive(lr: float | None) -> None:
                if lr is None:
                    adam.step()
                else:
                    adam.state.clear()
                    adam.param_groups[0]["lr"] = lr

            return adaptive
        velocity, rate = torch.zeros_like(live.weights) if local.momentum else None, 0.0

        def plain(lr: float | None) -> None:
            nonlocal rate
            if lr is not None:
                rate = lr
                if velocity is not None:
                    velocity.zero_()
                return
            if local.weight_decay:
                live.slopes.add_(live.weights, alpha=local.weight_decay)
            if velocity is not None:
                velocity.mul_(local.momentum).add_(live.slopes)
            live.weights.add_(live.slopes if velocity is None else velocity, alpha=-rate)

        return plain

    @property
    def _numpy(self) -> Any:
        return np.float64 if self.dtype == torch.float64 else np.float32

    # ---- what a model gives

    def scores(self, params: Params, tensors: Tensors, index: Ints) -> Scores:
        """Loss and hit of each of these examples."""
        loss, hits = [np.empty(0)], [np.empty(0)]
        for outputs, y in self._outputs(params, tensors, index):
            loss.append(self.network.losses(outputs, y).cpu().numpy().astype(np.float64))
            hits.append(correct(outputs, y).cpu().numpy().astype(np.float64))
        return np.concatenate(loss), np.concatenate(hits)

    def _outputs(self, params: Params, tensors: Tensors, index: Ints) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Outputs and targets of these examples, a part at a time."""
        rows = torch.as_tensor(np.asarray(index, np.int64), device=self.device)
        with on_its_own(self.device), torch.no_grad():
            self.load(params)
            self.live.module.eval()
            found = []
            for part in rows.split(CHUNK):
                x, y = tensors.batch(part, self.dtype)
                try:
                    found.append((self.live.module(x), y))
                except Exception as error:  # it is the user's code
                    raise self.network.failed("evaluated", error) from error
        return found

    def outputs(self, model: Network, params: Params, dataset: Dataset, part: str, index: Ints) -> Floats:
        """What the model gives for these examples."""
        parts = self._outputs(params, place(dataset, part, self.device), index)
        found: Floats = torch.cat([outputs for outputs, _ in parts]).cpu().numpy()
        return found

    def inputs(self, dataset: Dataset, x: Any) -> Floats:
        """Stored examples as numbers."""
        return inputs_of(dataset, x)

    def embed(self, model: Network, sent: Params, delta: Params, noise: Any) -> Any:
        """Mean outputs of each local model on the noise."""
        x, found = arranged(self._tensor(noise)), []
        for row in each_of(delta, several=True):
            with on_its_own(self.device), torch.no_grad():
                self.load({name: sent[name] + row[name] for name in sent})
                self.live.module.eval()
                found.append(self.live.module(x).mean(dim=0).flatten().cpu().numpy())
        return np.stack(found)

    def validation_losses(
        self, model: Network, dataset: Dataset, index: Ints, sent: Params, delta: Params, weights: Any
    ) -> Floats:
        """Mean loss on these test examples of the model sent plus each weighted sum of the updates."""
        tensors, found = place(dataset, "test", self.device), []
        for row in np.asarray(weights).reshape(-1, np.shape(weights)[-1]):
            moved = {name: sent[name] + total(delta[name], row) for name in sent}
            found.append(self.scores(moved, tensors, index)[0].mean())
        return np.array(found)
