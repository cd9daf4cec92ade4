"""A cohort in one compiled call: every client's local SGD, from the model it was sent.

Two forms of one computation, chosen for the machine:

- `one_by_one`: clients one after another on each device, as many steps as each has, and nothing for places that are not
  used. A CPU has one device per core (`_support.devices`), and the cohort is dealt out to them unless it is small.
- `side_by_side`: all clients in every product, padded steps masked out. For GPUs, where a loop whose length the device
  has to compute would wait for the host. The steps are divided into a few stages, and a client that has finished is
  left out of the later ones.

Clients may start from different models (several runs stacked into one call).
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from fedpick.learn.backend import LocalResults, LocalSGD, Params
from fedpick.learn.batches import Batches
from fedpick.learn.jax.models import Model
from fedpick.learn.jax.objective import Affine, losses, prepare, wide
from fedpick.learn.jax.placement import Arrays, deal, mesh

__all__ = ["one_by_one", "side_by_side"]

GATHERED = 1 << 18  # bytes of examples gathered at once on a CPU: they stay in its cache
STAGES = (4, 3, 5, 2, 1)  # into how many the steps are divided: the first of these that divides their number
LEAST = 32  # clients: narrower stages are not worth another compilation

# Multiplications of a cohort, see `_multiplications`, below which it stays on one device. To deal a cohort out and to
# put the results together takes 2 ms of one core, and on a busy machine one device waits for the other: workload
# D of benchmarks/bench_train.py (73 million) was slower on two cores than on one, E (216 million) was not.
WORTH = 100_000_000

Batch = tuple[jax.Array, jax.Array]  # examples and their labels, or targets
Carry = tuple[Params, Params, jax.Array]  # the model, its velocity, the sum of losses
Form = tuple[Any, tuple[jax.ShapeDtypeStruct, ...]]  # of a function's arguments: their tree, and each leaf's form


def _step(
    model: Model,
    local: LocalSGD,
    exact: bool,
    affine: Affine,
    sent: Params,
    count: jax.Array,
    steps: jax.Array,
    key: jax.Array,
    lr: jax.Array,
    more: Params = None,
) -> Callable[[Any, Carry, Batch], Carry]:
    """One client's local step; `exact` says that it is called for no padded step; `more` is added to gradients."""
    # On a GPU plain SGD takes the step itself as a gradient, which products then add to the weights as they go.
    plain = more is None and not (local.momentum or local.weight_decay or local.prox)
    added = plain and jax.default_backend() != "cpu"

    def objective(params: Params, s: Any, batch: Batch, scale: Any) -> tuple[jax.Array, jax.Array]:
        inputs = prepare(batch[0], affine, local.precision)
        outputs = model.apply(_cast(params, local.precision), inputs, jax.random.fold_in(key, s))
        each = losses(wide(outputs), batch[1])
        total = jnp.where(jnp.arange(len(each)) < count[s], each, 0.0).sum()
        return scale * total / jnp.maximum(count[s], 1), total

    def step(s: Any, carry: Carry, batch: Batch) -> Carry:
        params, velocity, seen = carry
        # A padded step has an empty batch and a learning rate of 0: cheaper than choosing between two models.
        rate = lr if exact else jnp.where(s < steps, lr, 0.0)
        if added:
            change, total = jax.grad(objective, has_aux=True)(params, s, batch, -rate)
            return jax.tree.map(jnp.add, params, change), velocity, seen + total
        gradient, total = jax.grad(objective, has_aux=True)(params, s, batch, 1.0)
        if local.weight_decay:
            gradient = jax.tree.map(lambda g, w: g + local.weight_decay * w, gradient, params)
        if local.prox:
            gradient = jax.tree.map(lambda g, w, old: g + local.prox * (w - old), gradient, params, sent)
        if more is not None:
            gradient = jax.tree.map(jnp.add, gradient, more)
        if local.momentum:
            gradient = velocity = jax.tree.map(lambda v, g: local.momentum * v + g, velocity, gradient)
        return jax.tree.map(lambda w, g: w - rate * g, params, gradient), velocity, seen + total

    return step


def _start(local: LocalSGD, sent: Params) -> Carry:
    return sent, jax.tree.map(jnp.zeros_like, sent) if local.momentum else (), jnp.zeros((), _sums(sent))


def _sums(sent: Params) -> Any:
    """The type of sums of losses: that of the weights."""
    return jnp.result_type(*jax.tree.leaves(sent))


def _result(sent: Params, carry: Carry, count: jax.Array) -> tuple[Params, jax.Array, jax.Array]:
    params, _, total = carry
    delta = jax.tree.map(jnp.subtract, params, sent)
    square = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(delta))
    return delta, total / jnp.maximum(count.sum(), 1), jnp.sqrt(square)


def _client(
    model: Model,
    local: LocalSGD,
    affine: Affine,
    x: jax.Array,
    y: jax.Array,
    sent: Params,
    index: jax.Array,
    count: jax.Array,
    steps: jax.Array,
    key: jax.Array,
    lr: jax.Array,
    more: Params = None,
) -> tuple[Params, jax.Array, jax.Array]:
    """A client's whole training, as one loop."""
    exact = jax.default_backend() == "cpu"
    step = _step(model, local, exact, affine, sent, count, steps, key, lr, more)
    start = _start(local, sent)

    def several(k: Any, carry: Carry) -> Carry:
        first = jnp.minimum(k * many, len(index) - many)
        rows = lax.dynamic_slice_in_dim(index, first, many)
        xs, ys = (part.at[rows].get(mode="promise_in_bounds") for part in (x, y))
        last = jnp.minimum((k + 1) * many, steps)
        return lax.fori_loop(k * many, last, lambda s, c: step(s, c, (xs[s - first], ys[s - first])), carry)

    if exact:
        many = _gathered(index.shape[1] * math.prod(x.shape[1:]) * x.dtype.itemsize, len(index))
        return _result(sent, lax.fori_loop(0, -(-steps // many), several, start), count)
    each = jnp.arange(len(count))
    return _result(sent, lax.scan(lambda c, s: (step(s, c, (x[index[s]], y[index[s]])), None), start, each)[0], count)


def _gathered(bytes_a_step: int, steps: int) -> int:
    """Steps whose examples are gathered in one go: XLA splits a gather over all threads, which takes longer than it."""
    return max(1, min(GATHERED // bytes_a_step, steps))


def _cast(params: Params, precision: str) -> Params:
    return params if precision != "bfloat16" else jax.tree.map(lambda w: w.astype(precision), params)


def _each(client: Callable[..., Any], clients: tuple[Any, ...], steps: jax.Array) -> Any:
    """The clients up to the last one that trains; zeros for those after it."""

    def pick(c: Any) -> Any:
        return jax.tree.map(lambda part: lax.dynamic_index_in_dim(part, c, keepdims=False), clients)

    def put(c: Any, out: Any) -> Any:
        return jax.tree.map(lambda all, one: lax.dynamic_update_index_in_dim(all, one, c, 0), out, client(*pick(c)))

    each = jax.eval_shape(lambda: client(*pick(0)))
    start = jax.tree.map(lambda one: jnp.zeros((len(steps), *one.shape), one.dtype), each)
    last = jnp.max(jnp.where(steps > 0, jnp.arange(1, len(steps) + 1), 0))
    return lax.fori_loop(0, last, put, start)


@lru_cache  # one compiled function for all trainers with the same model and settings
def _compiled(model: Model, local: LocalSGD, stacked: bool, devices: int) -> Callable[..., Any]:
    def cohort(sent: Params, affine: Affine, x: Any, y: Any, clients: tuple[Any, ...]) -> Any:
        def client(owner: Any, *rest: Any) -> Any:
            return _client(model, local, affine, x, y, _of(sent, owner, stacked), *rest)

        if jax.default_backend() != "cpu":
            return lax.map(lambda one: client(*one), clients)
        return _each(client, clients, steps=clients[3])

    if devices == 1:
        return jax.jit(cohort)
    here, dealt = PartitionSpec(), PartitionSpec("core")
    spread = jax.shard_map(
        cohort, mesh=mesh(devices), in_specs=(here, here, here, here, dealt), out_specs=dealt, check_vma=False
    )
    return jax.jit(spread)


def _of(sent: Params, owner: Any, stacked: bool) -> Params:
    """The model that a client was sent."""
    return jax.tree.map(lambda w: w[owner], sent) if stacked else sent


# ---- side by side, in stages


@lru_cache
def _ends(local: LocalSGD, stacked: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What is before the first stage and after the last one."""

    def begin(sent: Params, owners: Any) -> Carry:
        return jax.vmap(lambda owner: _start(local, _of(sent, owner, stacked)))(owners)

    def end(sent: Params, carry: Carry, owners: Any, counts: Any) -> Any:
        return jax.vmap(lambda owner, one, count: _result(_of(sent, owner, stacked), one, count))(owners, carry, counts)

    return jax.jit(begin), jax.jit(end)


@lru_cache
def _stage(model: Model, local: LocalSGD, stacked: bool, lanes: int, length: int, form: Form) -> Callable[..., Carry]:
    """So many steps, from step `first` on, of the first `lanes` clients; compiled for arguments of this form."""

    def stage(
        carry: Carry, first: Any, sent: Params, affine: Affine, x: Any, y: Any, clients: tuple[Any, ...]
    ) -> Carry:
        def client(carry: Carry, owner: Any, index: Any, *rest: Any) -> Carry:
            step = _step(model, local, False, affine, _of(sent, owner, stacked), *rest)
            rows = lax.dynamic_slice_in_dim(index, first, length)

            def one(carry: Carry, s: Any) -> tuple[Carry, None]:
                return step(first + s, carry, (x[rows[s]], y[rows[s]])), None

            return lax.scan(one, carry, jnp.arange(length))[0]

        some, those = jax.tree.map(lambda part: part[:lanes], (carry, clients))
        return jax.tree.map(lambda all, part: all.at[:lanes].set(part), carry, jax.vmap(client)(some, *those))

    compiled: Callable[..., Carry] = jax.jit(stage, donate_argnums=0).lower(*jax.tree.unflatten(*form)).compile()
    return compiled


@lru_cache
def _compiled_stages(
    model: Model, local: LocalSGD, stacked: bool, widths: frozenset[int], length: int, form: Form
) -> dict[int, Callable[..., Carry]]:
    """A stage for each width; compiled side by side, since a large network takes most of a minute on a GPU."""
    with ThreadPoolExecutor() as pool:
        made = pool.map(lambda lanes: _stage(model, local, stacked, lanes, length, form), widths)
        return dict(zip(widths, made, strict=True))


def _form(arguments: Any) -> Form:
    """What a function is compiled for: the shapes, types and places of its arguments."""
    leaves, tree = jax.tree.flatten(arguments)
    return tree, tuple(
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=getattr(leaf, "sharding", None)) for leaf in leaves
    )


def _stages(steps: Any, padded: int) -> tuple[int, list[int]]:
    """Steps in a stage, and the number of clients in each; clients are sorted, those with the most steps first.

    >>> _stages(np.array([4, 4, 2, 1]), padded=4)  # the width is at least 32
    (1, [4, 4, 4, 4])
    >>> _stages(np.repeat([40, 20, 10], 100), padded=40)  # in eighths of all clients
    (10, [300, 222, 111, 111])
    """
    many = next(k for k in STAGES if padded % k == 0)
    length, share = padded // many, max(LEAST, len(steps) // 8)
    left = [int(np.count_nonzero(steps > k * length)) for k in range(many)]
    return length, [min(-(-n // share) * share, len(steps)) for n in left]


def _clients(batches: Batches, owner: Any, added: Params | None) -> tuple[Any, ...]:
    """A cohort as arrays whose first axis is the client."""
    owners = np.zeros(len(batches.keys), np.int32) if owner is None else np.asarray(owner, np.int32)
    return owners, *batches.parts(), *(() if added is None else (jax.tree.map(np.asarray, added),))


def side_by_side(
    model: Model,
    local: LocalSGD,
    arrays: Arrays,
    sent: Params,
    batches: Batches,
    owner: Any = None,
    added: Params | None = None,
) -> LocalResults:
    """Train a cohort on one device; see `fedpick.learn.backend.Backend.train`."""
    steps, stacked = batches.steps, owner is not None
    order = np.argsort(-steps, kind="stable")
    clients = jax.device_put(jax.tree.map(lambda part: part[order], _clients(batches, owner, added)))
    begin, end = _ends(local, stacked)
    carry = begin(sent, clients[0])
    length, widths = _stages(steps[order], clients[1].shape[1])
    rest = (sent, arrays.affine, arrays.x, arrays.y, clients)
    form = _form((carry, np.int32(0), *rest))
    stages = _compiled_stages(model, local, stacked, frozenset(widths) - {0}, length, form)
    for k, lanes in enumerate(widths):
        if lanes:
            carry = stages[lanes](carry, np.int32(k * length), *rest)
    out = end(sent, carry, clients[0], clients[2])
    back = np.argsort(order)
    return LocalResults(*jax.tree.map(lambda leaf: leaf[back], out))


# ---- one by one, on each device


def one_by_one(
    model: Model,
    local: LocalSGD,
    arrays: Arrays,
    sent: Params,
    batches: Batches,
    owner: Any = None,
    added: Params | None = None,
) -> LocalResults:
    """Train a cohort, padded to a multiple of the devices; see `fedpick.learn.backend.Backend.train`."""
    stacked, clients = owner is not None, _clients(batches, owner, added)
    if _multiplications(sent, batches, stacked) < WORTH:
        arrays = arrays.first
    function = _compiled(model, local, stacked, arrays.devices)
    if arrays.devices == 1:
        return LocalResults(*function(sent, arrays.affine, arrays.x, arrays.y, clients))
    order = deal(batches.steps.astype(np.int64), arrays.devices)
    dealt = jax.tree.map(lambda part: part[order], clients)
    # From and to the host's memory, which is also the devices': placing arrays on them took 1 ms more of each round.
    out = function(jax.tree.map(np.asarray, sent), arrays.affine, arrays.x, arrays.y, dealt)
    # In the clients' order, so that sums are the same on any number of devices.
    return LocalResults(*jax.tree.map(lambda leaf: _collect(leaf, order), out))


def _multiplications(sent: Params, batches: Batches, stacked: bool) -> int:
    """A lower bound for one pass over all batches; padding counts, so that it is the same in every round."""
    params = sum(int(np.prod(leaf.shape[1:] if stacked else leaf.shape)) for leaf in jax.tree.leaves(sent))
    return batches.index.size * params


def _collect(dealt: jax.Array, order: Any) -> Any:
    """The devices' shares in the clients' order; copied by the host, which has the same memory."""
    shares = [np.asarray(shard.data) for shard in sorted(dealt.addressable_shards, key=lambda s: s.index[0].start)]
    together = np.empty(dealt.shape, dealt.dtype)
    for mine, share in zip(order.reshape(len(shares), -1), shares, strict=True):
        together[mine] = share
    return together
