"""FedAvg in PyTorch on one device: what bench_gpu.py measures ours against, in a process of its own.

    python torch_peer.py FOLDER FORM

FOLDER has the data, the first weights and every round's batches, as bench_gpu.py wrote them. FORM:

    loop                                client by client, step by step, as it is usually written
    vmap                                torch.func: all clients' parameters stacked, one step of all at a time
    vmap, unfolded                      the same, convolutions as products of patches (unfold)
    vmap, compiled                      vmap with torch.compile; ends with "max-autotune": in that mode
    vmap, unfolded, compiled

Says {"ready": ...}, then answers each line on stdin with one round: {"seconds": s, "loss": the mean training loss}.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

TF32 = True  # as JAX's products of float32 on a GPU


class Unfolded(nn.Conv2d):
    """A convolution as one product of patches and weights: with a weight for each client, a batched product."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the convolution does."""
        height, width = (side - size + 1 for side, size in zip(x.shape[-2:], self.kernel_size, strict=True))
        patches = nn.functional.unfold(x, self.kernel_size)  # (B, inputs, places)
        return (self.weight.flatten(1) @ patches + self.bias[:, None]).unflatten(2, (height, width))


def network(name: str, weights: list[np.ndarray], unfolded: bool) -> nn.Module:
    """The workload's model with the first weights, given in the layout (height, width, in, out) and (in, out)."""
    layers: list[nn.Module] = []
    channels = 0
    for w, b in zip(weights[::2], weights[1::2], strict=True):
        if w.ndim == 4:
            height, width, channels, out = w.shape
            layer = (Unfolded if unfolded else nn.Conv2d)(channels, out, (height, width))
            w, channels = w.transpose(3, 2, 0, 1), out
            layers += [layer, nn.ReLU(), nn.MaxPool2d(2)]
        else:
            if channels:  # the first dense layer reads an image: channels before pixels, here
                side = round((len(w) / channels) ** 0.5)
                w = w.reshape(side, side, channels, -1).transpose(2, 0, 1, 3).reshape(w.shape)
                layers.append(nn.Flatten())
                channels = 0
            layer = nn.Linear(*w.shape)
            w = w.T
            layers += [layer, nn.ReLU()]
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(np.ascontiguousarray(w)))
            layer.bias.copy_(torch.from_numpy(b))
    return nn.Sequential(*layers[:-1])


def prepared(x: torch.Tensor) -> torch.Tensor:
    """Pixels as numbers around 0."""
    return (x.float() / 255 - 0.5) / 0.3 if x.dtype == torch.uint8 else x


class Peer:
    """Data, plan and model on the device."""

    def __init__(self, folder: Path, unfolded: bool) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = TF32
        torch.backends.cudnn.benchmark = True
        settings = json.loads((folder / "settings.json").read_text())
        self.lr, self.momentum = settings["lr"], settings["momentum"]
        weights = [np.load(folder / f"p{i}.npy") for i in range(settings["weights"])]
        self.net = network(settings["name"], weights, unfolded).to(self.device)
        x = torch.from_numpy(np.load(folder / "x.npy")).to(self.device)
        self.x = x.permute(0, 3, 1, 2).contiguous() if x.ndim == 4 else x
        self.y = torch.from_numpy(np.load(folder / "y.npy")).long().to(self.device)
        self.plan, self.round = np.load(folder / "plan.npy"), 0  # (rounds, clients, steps, batch)

    def wait(self) -> None:
        """Until the device has done all."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def turn(self) -> float:
        """One round; the mean training loss."""
        index = torch.from_numpy(self.plan[self.round].astype(np.int64)).to(self.device)
        self.round += 1
        loss = float(self.train(index))
        self.wait()
        return loss

    def train(self, index: torch.Tensor) -> torch.Tensor:
        """One round of FedAvg on these batches."""
        raise NotImplementedError


class Loop(Peer):
    """The usual loop."""

    def train(self, index: torch.Tensor) -> torch.Tensor:
        """Clients one after another."""
        clients, steps, _ = index.shape
        sent = {key: value.clone() for key, value in self.net.state_dict().items()}
        total = {key: torch.zeros_like(value) for key, value in sent.items()}
        seen = torch.zeros((), device=self.device)
        for client in range(clients):
            self.net.load_state_dict(sent)
            optimiser = torch.optim.SGD(self.net.parameters(), self.lr, momentum=self.momentum)
            for step in range(steps):
                batch = index[client, step]
                loss = nn.functional.cross_entropy(self.net(prepared(self.x[batch])), self.y[batch])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                seen += loss.detach()
            for key, value in self.net.state_dict().items():
                total[key] += value / clients
        self.net.load_state_dict(total)
        return seen / (clients * steps)


class Vmap(Peer):
    """All clients at once; the stacked parameters stay where they are, so that a graph of the step can be kept."""

    def __init__(self, folder: Path, unfolded: bool, mode: str | None) -> None:
        super().__init__(folder, unfolded)
        clients = self.plan.shape[1]
        stacked, _ = stack_module_state([self.net] * clients)
        self.params = {name: value.detach().contiguous() for name, value in stacked.items()}
        self.velocity = {name: torch.zeros_like(value) for name, value in self.params.items()}
        self.seen = torch.zeros((), device=self.device)
        self.batch = torch.zeros(clients, self.plan.shape[3], dtype=torch.long, device=self.device)
        for p in self.net.parameters():
            p.requires_grad_(False)

        def loss(params: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(functional_call(self.net, params, (x,)), y)

        gradients = vmap(grad_and_value(loss))

        def step(
            params: dict[str, torch.Tensor],
            velocity: dict[str, torch.Tensor],
            seen: torch.Tensor,
            batch: torch.Tensor,
            x: torch.Tensor,
            y: torch.Tensor,
        ) -> None:
            """SGD with momentum, in place."""
            gradient, losses = gradients(params, prepared(x[batch]), y[batch])
            for name, value in params.items():
                change = gradient[name]
                if self.momentum:
                    change = velocity[name].mul_(self.momentum).add_(change)
                value.sub_(change, alpha=self.lr)
            seen.add_(losses.mean())

        self.step = step
        if mode is not None:
            for kept in (*self.params.values(), *self.velocity.values(), self.seen, self.batch, self.x, self.y):
                torch._dynamo.mark_static_address(kept)  # else no graph is kept of a step that changes them
            self.step = torch.compile(step, mode=mode, fullgraph=True, dynamic=False)

    def train(self, index: torch.Tensor) -> torch.Tensor:
        """Steps one after another, all clients in each."""
        torch._foreach_zero_(list(self.velocity.values()))
        self.seen.zero_()
        with torch.no_grad():
            for step in range(index.shape[1]):
                self.batch.copy_(index[:, step])
                self.step(self.params, self.velocity, self.seen, self.batch, self.x, self.y)
            for value in self.params.values():
                value.copy_(value.mean(0, keepdim=True).expand_as(value))
        return self.seen / index.shape[1]


def main() -> None:
    """Answer until stdin closes; what libraries print goes to stderr."""
    out = os.dup(1)
    os.dup2(2, 1)

    def say(**answer: object) -> None:
        os.write(out, (json.dumps(answer) + "\n").encode())

    folder, form = Path(sys.argv[1]), sys.argv[2]
    if form == "loop":
        peer: Peer = Loop(folder, False)
    else:
        mode = "max-autotune" if "max-autotune" in form else "default" if "compiled" in form else None
        peer = Vmap(folder, "unfolded" in form, mode)
    say(ready=True, torch=torch.__version__, device=str(peer.device))
    for _ in sys.stdin:
        started = time.perf_counter()
        loss = peer.turn()
        say(seconds=time.perf_counter() - started, loss=loss)


if __name__ == "__main__":
    main()
