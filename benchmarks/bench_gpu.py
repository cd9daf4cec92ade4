"""Rounds on a GPU: the CIFAR-10 CNN of E3CS and RBCS-F, an MLP and a logistic regression, against a PyTorch loop.

    python benchmarks/bench_gpu.py [--out FOLDER] [--learn CIFAR.npz]

All figures come from one run: medians over rounds, ours and PyTorch's alternating. The data are random pixels with
artificial classes in the shapes of the real data; `--learn` takes real images (x, y, test_x, test_y) and shows that
bfloat16 learns as well as float32. Needs a GPU with JAX; the PyTorch rows need PyTorch.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import fedpick as fp
from _manifest import manifest
from fedpick.data import Dataset, Federated
from fedpick.simulate.together import aggregate_together, play_together, train_together
from fedpick.types import Choice, Outcome

WORKLOADS = {  # inputs, clients a round, steps, batch, examples a client
    "cnn": ((32, 32, 3), 20, 28, 40, 500),
    "mlp": ((784,), 10, 30, 64, 600),
    "logistic": ((60,), 3, 30, 50, 200),
}
LR = 0.01


def make_model(name):
    """The workload's model."""
    learn = fp.learn
    return {
        "cnn": lambda: learn.model("cifar-cnn", (32, 32, 3), 10),
        "mlp": lambda: learn.mlp((784,), 10, hidden=(200, 200)),
        "logistic": lambda: learn.logistic((60,), 10),
    }[name]()


def make_data(name, clients=100):
    """A task of the workload's shapes that can be learned."""
    inputs, *_, size = WORKLOADS[name]
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, clients * size).astype(np.int32)
    x = rng.normal(size=(10, *inputs))[y] + 4.0 * rng.normal(size=(clients * size, *inputs))
    x = x.astype(np.float32) if name == "logistic" else np.clip(x * 20 + 128, 0, 255).astype(np.uint8)
    channels = inputs[-1] if name == "cnn" else 1
    dataset = Dataset(name, x, y, x[:1000], y[:1000], classes=10, mean=(0.5,) * channels, std=(0.3,) * channels)
    return Federated(dataset, np.arange(clients * size), np.arange(clients + 1) * size)


def flops(name):
    """Multiplications and additions of a round: three products a layer, no gradient to the first layer's inputs."""
    _, clients, steps, batch, _ = WORKLOADS[name]
    layers = {
        "cnn": [28 * 28 * 75 * 64, 10 * 10 * 1600 * 64, 1600 * 384, 384 * 192, 192 * 10],
        "mlp": [784 * 200, 200 * 200, 200 * 10],
        "logistic": [60 * 10],
    }[name]
    return 2 * (3 * sum(layers) - layers[0]) * clients * steps * batch


def bytes_of(trainer, name):
    """Bytes that one step of the cohort moves to and from memory, as the compiler counts them, times the steps."""
    import jax
    import jax.numpy as jnp

    from fedpick.learn.objective import losses, prepare

    inputs, clients, steps, batch, _ = WORKLOADS[name]
    params = trainer.init(0)["params"]
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (clients, *leaf.shape)), params)
    x = jnp.zeros((clients, batch, *inputs), trainer.data.dataset.x.dtype)
    y = jnp.zeros((clients, batch), jnp.int32)
    affine = trainer._arrays.affine

    def step(w, x, y):
        def loss(w):
            cast = jax.tree.map(lambda leaf: leaf.astype(trainer.precision), w)
            outputs = trainer.model.apply(cast, prepare(x, affine, trainer.precision), None)
            return losses(outputs.astype(jnp.float32), y).mean()

        return jax.tree.map(lambda a, b: a - LR * b, w, jax.grad(loss)(w))

    cost = jax.jit(jax.vmap(step)).lower(stacked, x, y).compile().cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    return float(cost["bytes accessed"]) * steps


class Ours:
    """One run, or several stacked into one call; a turn is one round of each."""

    def __init__(self, name, data, stacked=1, precision="float32", clients=None):
        import jax

        self.ready = jax.block_until_ready
        chosen, steps, batch = WORKLOADS[name][1:4]
        self.trainers = [
            fp.learn.Trainer(
                data, make_model(name), lr=LR, batch=batch, steps=steps, momentum=0.9 if name == "cnn" else 0.0,
                precision=precision, evaluate_every=10**9,
            )
            for _ in range(stacked)
        ]  # fmt: skip
        self.models = [trainer.init(i) for i, trainer in enumerate(self.trainers)]
        self.chosen, self.round = chosen, 0

    def turn(self):
        """One round; the mean training loss."""
        self.round += 1
        jobs, choices = [], []
        for i in range(len(self.models)):
            rng = fp.rng.stream(i, self.round, "bench")
            ids = rng.choice(len(self.trainers[0].data), self.chosen, replace=False)
            choices.append(Choice(ids))
            everyone = np.ones(len(ids), bool)
            jobs.append((self.models[i], ids, everyone, np.ones(len(ids)), self.round, rng))
        ones = [
            Outcome(np.zeros(len(choice), np.int8), np.ones(len(choice)), np.ones(len(choice))) for choice in choices
        ]
        if len(jobs) == 1:
            updates = [self.trainers[0].train(*jobs[0])]
            self.models = [self.trainers[0].aggregate(self.models[0], choices[0], ones[0], updates[0])]
        else:
            updates = train_together(self.trainers, jobs)
            self.models = aggregate_together(self.trainers, self.models, choices, ones, updates)
        self.ready(self.models)
        return float(np.nanmean([update.loss.mean() for update in updates]))


class Torch:
    """The loop that most people write: client by client, batch by batch, with TF32 products allowed."""

    def __init__(self, name, data):
        import torch
        from torch import nn

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
        self.torch, self.name, self.data = torch, name, data
        if name == "cnn":
            self.net = nn.Sequential(
                nn.Conv2d(3, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
                nn.Flatten(), nn.Linear(1600, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10),
            )  # fmt: skip
        elif name == "mlp":
            self.net = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
        else:
            self.net = nn.Linear(60, 10)
        self.net.cuda()
        x = torch.from_numpy(data.dataset.x).cuda()
        self.x = x.permute(0, 3, 1, 2).contiguous() if name == "cnn" else x
        self.y = torch.from_numpy(data.dataset.y).long().cuda()
        self.round = 0

    def turn(self):
        """One round; the mean training loss."""
        torch = self.torch
        self.round += 1
        chosen, steps, batch = WORKLOADS[self.name][1:4]
        rng = fp.rng.stream(0, self.round, "bench")
        ids = rng.choice(len(self.data), chosen, replace=False)
        sent = {key: value.clone() for key, value in self.net.state_dict().items()}
        total = {key: torch.zeros_like(value) for key, value in sent.items()}
        loss_sum = torch.zeros((), device="cuda")
        for client in ids:
            self.net.load_state_dict(sent)
            optimiser = torch.optim.SGD(self.net.parameters(), LR, momentum=0.9 if self.name == "cnn" else 0.0)
            examples = self.data.examples_of(client)
            for _ in range(steps):
                index = torch.from_numpy(rng.choice(examples, batch, replace=False)).cuda()
                x = self.x[index]
                x = (x.float() / 255 - 0.5) / 0.3 if x.dtype == torch.uint8 else x
                loss = torch.nn.functional.cross_entropy(self.net(x), self.y[index])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                loss_sum += loss.detach()
            for key, value in self.net.state_dict().items():
                total[key] += value / chosen
        self.net.load_state_dict(total)
        torch.cuda.synchronize()
        return float(loss_sum) / (chosen * steps)


def measure(engines, rounds):
    """Median seconds of a round of each engine, in turns; and the mean loss of the first and the last round."""
    first = {name: engine.turn() for name, engine in engines.items()}  # compiles
    for engine in engines.values():
        engine.turn()
    times = {name: [] for name in engines}
    last = {}
    for _ in range(rounds):
        for name, engine in engines.items():
            start = time.perf_counter()
            last[name] = engine.turn()
            times[name].append(time.perf_counter() - start)
    return {
        name: {"seconds": statistics.median(values), "best": min(values), "first_loss": first[name], "loss": last[name]}
        for name, values in times.items()
    }


def ceilings():
    """TFLOP/s of a large product in float32 (TF32) and bfloat16, and TB/s of a copy, in this run."""
    import jax
    import jax.numpy as jnp

    def best(function, *arguments):
        compiled = jax.jit(function)
        jax.block_until_ready(compiled(*arguments))
        times = []
        for _ in range(5):
            start = time.perf_counter()
            jax.block_until_ready(compiled(*arguments))
            times.append(time.perf_counter() - start)
        return min(times)

    found = {}
    for kind in ("float32", "bfloat16"):
        a = jax.random.normal(jax.random.key(0), (8192, 8192)).astype(kind)
        found[kind] = 2 * 8192**3 / best(lambda a: a @ a, a) / 1e12
    big = jnp.zeros(1 << 28, jnp.float32)
    found["terabytes"] = 2 * big.nbytes / best(lambda a: a + 1, big) / 1e12
    return found


def show_learning(path, rounds=60):
    """Test accuracy with float32 and with bfloat16 on real images: E3CS's split, 20 of 100 clients, same seeds."""
    loaded = np.load(path)
    dataset = Dataset(
        "cifar10", loaded["x"], loaded["y"].astype(np.int32), loaded["test_x"], loaded["test_y"].astype(np.int32),
        classes=10, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616),
    )  # fmt: skip
    found = {}
    for precision in ("float32", "bfloat16"):
        runs = []
        for seed in range(3):
            people = fp.data.PrimaryLabel(share=0.8, size=200)(dataset, 100, fp.rng.stream(seed, 0, "partition"))
            trainer = fp.learn.Trainer(
                people, make_model("cnn"), lr=0.01, batch=40, steps=20, momentum=0.9, precision=precision,
                evaluate_every=5, spread_every=0,
            )  # fmt: skip
            world = fp.World(
                people.clients, fp.worlds.Always(), fp.worlds.Reliable(), fp.worlds.PerClient(), None, (1,)
            )
            runs.append(fp.Run(fp.Uniform(20), world, seed=seed, trainer=trainer))
        curves = [[], [], []]
        for records in play_together(runs, rounds):
            for curve, record in zip(curves, records, strict=True):
                if record.metrics:
                    curve.append(record.metrics["accuracy"])
        found[precision] = curves
    return found


def render(result):
    """The result as a page."""
    ceilings = result["ceilings"]
    lines = [
        "# Rounds on a GPU",
        "",
        f"{result['device']}; in the same run a large product reaches {ceilings['float32']:.0f} TFLOP/s in float32 "
        f"(TF32) and {ceilings['bfloat16']:.0f} in bfloat16, a copy {ceilings['terabytes']:.1f} TB/s. Medians, engines "
        "in turns; bytes as the compiler counts them. Written by `make bench-gpu`.",
        "",
        "| workload | engine | ms for a round of each | runs | rounds/s | beside PyTorch | TFLOP/s | TB/s | loss |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, rows in result["workloads"].items():
        peer = rows.get("PyTorch loop", {}).get("rounds_per_second")
        for engine, row in rows.items():
            ratio = f"{row['rounds_per_second'] / peer:.1f}x" if peer else ""
            moved = f"{row['terabytes_per_second']:.2f}" if "terabytes_per_second" in row else ""
            lines.append(
                f"| {name} | {engine} | {1e3 * row['seconds']:.1f} | {row['runs']} | {row['rounds_per_second']:,.1f} | "
                f"{ratio} | {row['tflops']:.2f} | {moved} | {row['first_loss']:.2f} to {row['loss']:.2f} |"
            )
    if "learning" in result:
        last = {kind: [f"{100 * curve[-1]:.1f}%" for curve in curves] for kind, curves in result["learning"].items()}
        lines += [
            "",
            "Learning on 12,000 CIFAR-10 images (100 clients, 80% of one label each, 20 a round, 60 rounds), test "
            f"accuracy at the end, three seeds: float32 {', '.join(last['float32'])}; bfloat16 "
            f"{', '.join(last['bfloat16'])}.",
        ]
    return "\n".join(lines) + "\n"


def main():
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpu")
    parser.add_argument("--learn", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    import jax

    if jax.default_backend() == "cpu":
        sys.exit("no GPU here: JAX sees " + str(jax.devices()))
    try:
        import torch  # noqa: F401

        peer = True
    except ImportError:
        peer = False
        print("PyTorch is not installed: its rows are left out")
    result = {"ceilings": ceilings(), "device": str(jax.devices()[0].device_kind), "workloads": {}}
    print(json.dumps(result["ceilings"]), flush=True)
    for name in WORKLOADS:
        data = make_data(name)
        engines = {"ours": Ours(name, data), "ours, bfloat16": Ours(name, data, precision="bfloat16")}
        deep = 8 if name == "cnn" else 16
        engines[f"ours, {deep} stacked"] = Ours(name, data, stacked=deep)
        if name == "cnn":
            engines["ours, 8 stacked, bfloat16"] = Ours(name, data, stacked=8, precision="bfloat16")
        if peer:
            engines["PyTorch loop"] = Torch(name, data)
        rows = measure(engines, options.rounds)
        for engine, row in rows.items():
            runs = len(engines[engine].models) if engine.startswith("ours") else 1
            row["runs"], row["rounds_per_second"] = runs, runs / row["seconds"]
            row["tflops"] = flops(name) * runs / row["seconds"] / 1e12
            if engine.startswith("ours"):
                moved = bytes_of(engines[engine].trainers[0], name) * runs
                row["terabytes_per_second"] = moved / row["seconds"] / 1e12
            print(name, engine, {key: round(value, 4) for key, value in row.items()}, flush=True)
        result["workloads"][name] = rows
    if options.learn:
        result["learning"] = show_learning(options.learn)
        for precision, curves in result["learning"].items():
            print(precision, [round(curve[-1], 4) for curve in curves], flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "gpu.md").write_text(render(result))
    (options.out / "manifest.json").write_text(json.dumps(manifest({"rounds": options.rounds}), indent=2) + "\n")


if __name__ == "__main__":
    main()
