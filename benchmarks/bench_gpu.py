"""Rounds on a GPU: the CIFAR-10 CNN of E3CS and RBCS-F, an MLP and a logistic regression, against PyTorch.

    python benchmarks/bench_gpu.py                          all workloads, about ten minutes
    python benchmarks/bench_gpu.py --only cnn               this one; what was measured of others before is kept
    python benchmarks/bench_gpu.py --limit 0                without torch.compile
    python benchmarks/bench_gpu.py --learn CIFAR.npz        real images (x, y, test_x, test_y): does bfloat16 learn?
    python benchmarks/bench_gpu.py --tiny --out FOLDER      a smoke test with a few clients, on a CPU, too

The figures of a workload come from one run: medians over rounds, all engines in turns, from the same weights, with the
same batches. The data are random pixels with artificial classes in the shapes of the real data. PyTorch runs in
processes of its own (gpu/torch_peer.py): a loop over clients, and torch.func's vmap over them, plain and with
torch.compile; one that fails, or whose first round takes longer than the limit, is left out, and the page says so.
Needs a GPU with JAX; the PyTorch rows need PyTorch.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import fedpick as fp
from _manifest import manifest
from fedpick.core.types import Choice, Outcome
from fedpick.data import Dataset, Federated
from fedpick.simulate.round import Work
from fedpick.simulate.together import aggregate_together, play_together, train_together

WORKLOADS = {  # inputs, clients a round, steps, batch, examples a client
    "cnn": ((32, 32, 3), 20, 28, 40, 500),
    "mlp": ((784,), 10, 30, 64, 600),
    "logistic": ((60,), 3, 30, 50, 200),
}
TINY = {"cnn": ((32, 32, 3), 3, 2, 8, 20), "mlp": ((784,), 3, 2, 8, 20), "logistic": ((60,), 3, 2, 8, 20)}
LR = 0.01
PEERS = [  # see gpu/torch_peer.py; "unfolded" is about convolutions
    "loop",
    "vmap",
    "vmap, unfolded",
    "vmap, compiled",
    "vmap, unfolded, compiled",
    "vmap, compiled with max-autotune",
]


def momentum_of(name):
    """Of the clients' SGD."""
    return 0.9 if name == "cnn" else 0.0


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

    from fedpick.learn.jax.objective import losses, prepare

    inputs, clients, steps, batch, _ = WORKLOADS[name]
    params = trainer.init(0)["params"]
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (clients, *leaf.shape)), params)
    x = jnp.zeros((clients, batch, *inputs), trainer.data.dataset.x.dtype)
    y = jnp.zeros((clients, batch), jnp.int32)
    affine = trainer.placed().affine

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
                data, make_model(name), lr=LR, batch=batch, steps=steps, momentum=momentum_of(name),
                precision=precision, evaluate_every=10**9,
            )
            for _ in range(stacked)
        ]  # fmt: skip
        self.models = [trainer.init(i) for i, trainer in enumerate(self.trainers)]
        self.chosen, self.round = chosen, 0

    def turn(self):
        """One round: its seconds, and the mean training loss."""
        started = time.perf_counter()
        self.round += 1
        jobs, choices = [], []
        for i in range(len(self.models)):
            rng = fp.rng.stream(i, self.round, "bench")
            ids = rng.choice(len(self.trainers[0].data), self.chosen, replace=False)
            choices.append(Choice(ids))
            everyone = np.ones(len(ids), bool)
            jobs.append(Work(self.models[i], ids, everyone, np.ones(len(ids)), self.round, rng))
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
        return time.perf_counter() - started, float(np.nanmean([update.loss.mean() for update in updates]))


def write_plan(name, data, rounds, folder):
    """What gpu/torch_peer.py reads: data, the first weights of our first run, and its batches in every round."""
    import jax

    chosen, steps, batch = WORKLOADS[name][1:4]
    trainer = fp.learn.Trainer(data, make_model(name), lr=LR, batch=batch, steps=steps)
    plan = []
    for round in range(1, rounds + 1):
        rng = fp.rng.stream(0, round, "bench")
        ids = rng.choice(len(data), chosen, replace=False)
        drawn = trainer.draw(ids, np.arange(chosen), np.ones(chosen), round, rng)
        plan.append(drawn.index[:chosen, :steps].copy())
    np.save(folder / "x.npy", data.dataset.x)
    np.save(folder / "y.npy", data.dataset.y)
    np.save(folder / "plan.npy", np.stack(plan))
    layers = jax.tree.leaves(trainer.init(0)["params"], is_leaf=lambda part: isinstance(part, dict) and "w" in part)
    weights = [np.asarray(layer[part]) for layer in layers for part in ("w", "b")]
    for i, array in enumerate(weights):
        np.save(folder / f"p{i}.npy", array)
    settings = {"name": name, "lr": LR, "momentum": momentum_of(name), "weights": len(weights)}
    (folder / "settings.json").write_text(json.dumps(settings))


class PeerError(RuntimeError):
    """A peer failed, or took too long."""


class Peer:
    """A process with PyTorch, which has done its first round."""

    def __init__(self, python, folder, form, limit, stack):
        self.log = folder / f"{form.replace(', ', '-').replace(' ', '-')}.log"
        script = Path(__file__).parent / "gpu" / "torch_peer.py"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [python, str(script), str(folder), form], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, start_new_session=True,
            )  # fmt: skip
        stack.callback(self.close)
        self.began, self.first = time.perf_counter(), None
        self.hear(limit)
        self.compiling, self.first = self.turn(max(1.0, limit - (time.perf_counter() - self.began)))

    def hear(self, limit):
        """The next answer."""
        watchdog = threading.Timer(limit, self.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        late = not watchdog.is_alive()
        watchdog.cancel()
        if not line:
            self.close()
            if late:
                raise PeerError(f"stopped after {time.perf_counter() - self.began:.0f} s")
            told = self.log.read_text(errors="replace").strip().splitlines()
            raise PeerError(next((part for part in reversed(told) if part.strip()), "it ended without a word"))
        return json.loads(line)

    def turn(self, limit=120.0):
        """One round: its seconds, and the mean training loss."""
        if self.first is not None:
            self.began = time.perf_counter()
        with contextlib.suppress(BrokenPipeError):  # told by what is heard
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        answer = self.hear(limit)
        return answer["seconds"], answer["loss"]

    def kill(self):
        """The process and those that it started for compiling."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self):
        """End it."""
        self.kill()
        self.process.communicate()  # closes its pipes, too


def measure(engines, rounds, left_out):
    """Seconds of a round of each engine, in turns: median and quartiles; the first round; the loss before and after.

    An engine that fails goes to `left_out`, with the reason.
    """
    firsts, times, last = {}, {name: [] for name in engines}, {}
    for turn in range(rounds + 2):
        for name, engine in engines.items():
            if name in left_out:
                continue
            if not turn:  # compiles; a peer has done it
                firsts[name] = (engine.compiling, engine.first) if isinstance(engine, Peer) else engine.turn()
                continue
            try:
                seconds, last[name] = engine.turn()
            except PeerError as error:
                left_out[name] = str(error)
                print(name, "is left out:", error, flush=True)
                continue
            if turn > 1:
                times[name].append(seconds)
    return {
        name: {
            "seconds": statistics.median(values),
            "quartiles": [float(q) for q in np.quantile(values, [0.25, 0.75])],
            "best": min(values),
            "first_seconds": firsts[name][0],
            "first_loss": firsts[name][1],
            "loss": last[name],
        }
        for name, values in times.items()
        if name not in left_out
    }


def ceilings(size):
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
        a = jax.random.normal(jax.random.key(0), (size, size)).astype(kind)
        found[kind] = 2 * size**3 / best(lambda a: a @ a, a) / 1e12
    big = jnp.zeros(4 * size * size, jnp.float32)
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
            federated = fp.data.PrimaryLabel(share=0.8, size=200)(dataset, 100, fp.rng.stream(seed, 0, "partition"))
            trainer = fp.learn.Trainer(
                federated, make_model("cnn"), lr=0.01, batch=40, steps=20, momentum=0.9, precision=precision,
                evaluate_every=5, spread_every=0,
            )  # fmt: skip
            world = fp.World(
                federated.clients, fp.worlds.Always(), fp.worlds.Reliable(), fp.worlds.PerClient(), None, (1,)
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
    lines = [
        "# Rounds on a GPU",
        "",
        "Medians and quartiles, engines in turns; bytes as the compiler counts them, which leaves out what Pallas "
        "kernels move; the first round includes "
        "compiling. Written by `make bench-gpu`.",
        "",
        "| workload | engine | ms for a round of each | quartiles | runs | rounds/s | beside the PyTorch loop | "
        "beside the best PyTorch | first round, s | TFLOP/s | TB/s | loss |",
        "| --- | --- |" + " ---: |" * 9 + " --- |",
    ]
    for name, found in result["workloads"].items():
        rows = found["rows"]
        loop = rows.get("PyTorch loop", {}).get("rounds_per_second")
        peers = [row["rounds_per_second"] for engine, row in rows.items() if engine.startswith("PyTorch")]
        best = max(peers) if len(peers) > 1 else None
        for engine, row in rows.items():
            beside = [f"{row['rounds_per_second'] / peer:.1f}x" if peer else "" for peer in (loop, best)]
            moved = f"{row['terabytes_per_second']:.2f}" if "terabytes_per_second" in row else ""
            between = "-".join(f"{1e3 * q:.1f}" for q in row.get("quartiles", []))
            first = f"{row['first_seconds']:.1f}" if "first_seconds" in row else ""
            lines.append(
                f"| {name} | {engine} | {1e3 * row['seconds']:.1f} | {between} | {row['runs']} | "
                f"{row['rounds_per_second']:,.1f} | {' | '.join(beside)} | {first} | {row['tflops']:.2f} | {moved} | "
                f"{row['first_loss']:.2f} to {row['loss']:.2f} |"
            )
    lines.append("")
    for name, found in result["workloads"].items():
        top, about = found["ceilings"], found["manifest"]
        versions = ", ".join(f"{lib} {about['versions'][lib]}" for lib in ("jax", "torch") if lib in about["versions"])
        drawn = (
            "all engines have the same first weights and batches, which ours draws and PyTorch finds ready"
            if found["same_batches"]
            else "each engine drew its own weights and batches"
        )
        lines.append(
            f"- {name}: {found['device']}, {about['date'][:10]}, commit {about['commit']}, {versions}; {drawn}; in the "
            f"same run a large product reaches {top['float32']:.0f} TFLOP/s in float32 (TF32) and "
            f"{top['bfloat16']:.0f} in bfloat16, a copy {top['terabytes']:.1f} TB/s."
        )
        lines += [f"    - left out: {form}: {reason}" for form, reason in found.get("left_out", {}).items()]
    if "learning" in result:
        last = {kind: [f"{100 * curve[-1]:.1f}%" for curve in curves] for kind, curves in result["learning"].items()}
        lines += [
            "",
            "Learning on 12,000 CIFAR-10 images (100 clients, 80% of one label each, 20 a round, 60 rounds), test "
            f"accuracy at the end, three seeds: float32 {', '.join(last['float32'])}; bfloat16 "
            f"{', '.join(last['bfloat16'])}.",
        ]
    return "\n".join(lines) + "\n"


def start_peers(name, folder, python, limit, stack):
    """PyTorch's engines, one started after another, since some choose their kernels by measuring; and what failed."""
    peers, left_out = {}, {}
    for form in [form for form in PEERS if name == "cnn" or "unfolded" not in form]:
        label = f"PyTorch {form}"
        if "compiled" in form and limit <= 0:
            continue
        print(f"{name}: {label} starts ...", flush=True)
        try:
            peer = Peer(python, folder, form, limit if "compiled" in form else 120.0, stack)
            print(f"{name}: {label}: first round took {peer.compiling:.1f} s, loss {peer.first:.4f}", flush=True)
            peers[label] = peer
        except PeerError as error:
            left_out[label] = str(error)
            print(f"{name}: {label} is left out: {error}", flush=True)
    return peers, left_out


def measure_workload(name, options, python):
    """All engines on one workload."""
    data = make_data(name)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        peers, left_out = {}, {}
        if python:
            write_plan(name, data, options.rounds + 2, Path(folder))
            peers, left_out = start_peers(name, Path(folder), python, options.limit, stack)
        engines = {"ours": Ours(name, data), "ours, bfloat16": Ours(name, data, precision="bfloat16")}
        deep = 2 if options.tiny else 8 if name == "cnn" else 16
        engines[f"ours, {deep} stacked"] = Ours(name, data, stacked=deep)
        if name == "cnn":
            engines[f"ours, {deep} stacked, bfloat16"] = Ours(name, data, stacked=deep, precision="bfloat16")
        rows = measure({**engines, **peers}, options.rounds, left_out)
    for engine, row in rows.items():
        runs = len(engines[engine].models) if engine in engines else 1
        row["runs"], row["rounds_per_second"] = runs, runs / row["seconds"]
        row["tflops"] = flops(name) * runs / row["seconds"] / 1e12
        if engine in engines:
            moved = bytes_of(engines[engine].trainers[0], name) * runs
            row["terabytes_per_second"] = moved / row["seconds"] / 1e12
        print(name, engine, {key: np.round(value, 4).tolist() for key, value in row.items()}, flush=True)
        expected = rows["ours"]["first_loss"]
        if runs == 1 and abs(row["first_loss"] - expected) > 0.02:
            print(f"WARNING: {engine} begins with a loss of {row['first_loss']:.4f}, ours with {expected:.4f}")
    return rows, left_out


def main():
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpu")
    parser.add_argument("--only", action="append", choices=list(WORKLOADS), help="this workload; may be repeated")
    parser.add_argument("--learn", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for torch.compile; 0: leave it out")
    parser.add_argument("--torch", default=sys.executable, help="an interpreter that has PyTorch")
    parser.add_argument("--tiny", action="store_true", help="a smoke test, on a CPU, too")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # peers are closed on the way out
    import jax

    if jax.default_backend() == "cpu" and not options.tiny:
        sys.exit("no GPU here: JAX sees " + str(jax.devices()))
    if options.tiny:
        WORKLOADS.update(TINY)
    has_torch = subprocess.run([options.torch, "-c", "import torch"], capture_output=True).returncode == 0
    if not has_torch:
        print("PyTorch is not installed: its rows are left out")
    kept = options.out / "gpu.json"
    result = json.loads(kept.read_text()) if kept.exists() else {"workloads": {}}
    top = ceilings(256 if options.tiny else 8192)
    print(json.dumps(top), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only or WORKLOADS:
        rows, left_out = measure_workload(name, options, options.torch if has_torch else None)
        result["workloads"][name] = {
            "device": str(jax.devices()[0].device_kind), "manifest": manifest({"rounds": options.rounds}),
            "ceilings": top, "same_batches": True, "left_out": left_out, "rows": rows,
        }  # fmt: skip
        keep(result, options.out)
    if options.learn:
        result["learning"] = show_learning(options.learn)
        for precision, curves in result["learning"].items():
            print(precision, [round(curve[-1], 4) for curve in curves], flush=True)
        keep(result, options.out)


def keep(result, folder):
    """Write what there is, in the order of the workloads."""
    result["workloads"] = {name: result["workloads"][name] for name in WORKLOADS if name in result["workloads"]}
    (folder / "gpu.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "gpu.md").write_text(render(result))


if __name__ == "__main__":
    main()
