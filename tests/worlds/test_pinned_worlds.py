"""What every world draws with a fixed seed stays: who is there, who fails, how long each takes, and from which streams.

`python tests/worlds/test_pinned_worlds.py` writes the file anew after a change that is meant; CHANGELOG says it then.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpick import worlds
from fedpick.core import rng as rngs
from fedpick.core.types import Clients

FILE = Path(__file__).with_suffix(".json")
K, ROUNDS = 12, 6
PEOPLE = Clients(10.0 + np.sqrt(np.arange(K) * 5 % 7), np.arange(3 * K).reshape(K, 3) * 7 % 11)


def made() -> dict[str, worlds.World]:
    """The presets, and worlds with each part that no preset has."""
    found = {name: make(K) for name, make in worlds.WORLDS.items()}
    for part in (
        worlds.MarkovOnOff(on=3.0, off=2.0),
        worlds.Halves(),
        worlds.MoreDataFirst(0.4),
        worlds.LessDataFirst(0.4),
        worlds.YMaxFirst(0.4),
        worlds.YCycle(0.4),
        worlds.SinLogNormal(0.4),
        worlds.Diurnal(),
    ):
        found[f"availability {type(part).__name__}"] = worlds.World(PEOPLE, availability=part)
    for volatile in (worlds.Bursts((0.3, 0.8), spell=4.0), worlds.Shift((0.2, 0.9), (0.9, 0.2), at=4.0)):
        found[f"volatility {type(volatile).__name__}"] = worlds.World(PEOPLE, volatility=volatile)
    for latency in (worlds.Gamma(), worlds.Linear(), worlds.LogNormalTime(), worlds.Device(), worlds.PerClient(2.0)):
        found[f"latency {type(latency).__name__}"] = worlds.World(PEOPLE, latency=latency)
    return found


def played(world: worlds.World, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    streams, usual = dict[str, None](), (rngs.stream, rngs.uniforms)

    def stream(seed: int, round: int, name: str) -> np.random.Generator:
        streams[f"{min(round, 1)} {name}"] = None
        return usual[0](seed, round, name)

    def uniforms(seed: int, name: str, *rest: Any) -> Any:
        streams[f"clients' {name}"] = None
        return usual[1](seed, name, *rest)

    monkeypatch.setattr(rngs, "stream", stream)
    monkeypatch.setattr(rngs, "uniforms", uniforms)
    state, everyone = world.init(5), np.arange(K)
    lines = []
    for t in range(1, ROUNDS + 1):
        draw = world.draw(state, 5, t)
        view = world.view(state, draw)
        seconds, works = world.seconds(state, draw, everyone), world.works(state, draw, everyone)
        context = [] if view.context is None else view.context.sum(axis=0).tolist()
        masks = ["".join("01"[int(each)] for each in mask) for mask in (view.available, works)]
        numbers = [seconds.sum(), seconds @ np.cos(everyone), *context]
        order = " ".join(map(str, draw.first(seconds.round(2), everyone)))
        lines.append([*masks, order, *(f"{x:.10g}" for x in numbers)])
        state.idle = everyone % t != 1
        state.clock += 3.1e4
    known = {
        name: [f"{each:.10g}" for each in (values.sum(), values.ravel() @ np.cos(np.arange(values.size)))]
        for name, values in sorted(world.truth(5).items())
    }
    epochs = " ".join(f"{each:g}" for each in state.epochs)
    return {"streams": sorted(streams), "epochs": epochs, "truth": known, "rounds": lines}


@pytest.mark.parametrize("name", made())
def test_worlds_stay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = json.loads(FILE.read_text(encoding="utf-8"))[name]
    found = played(made()[name], monkeypatch)
    assert (found["streams"], found["epochs"]) == (pinned["streams"], pinned["epochs"])
    assert found["truth"].keys() == pinned["truth"].keys()
    for name, numbers in pinned["truth"].items():
        assert [float(x) for x in found["truth"][name]] == pytest.approx([float(x) for x in numbers], rel=1e-8)
    for mine, kept in zip(found["rounds"], pinned["rounds"], strict=True):
        assert mine[:3] == kept[:3]
        assert [float(x) for x in mine[3:]] == pytest.approx([float(x) for x in kept[3:]], rel=1e-8)


if __name__ == "__main__":
    texts = []
    for name, world in made().items():
        with pytest.MonkeyPatch.context() as patch:
            texts.append(f"{json.dumps(name)}: {json.dumps(played(world, patch))}")
    FILE.write_text("{\n" + ",\n".join(texts) + "\n}\n", encoding="utf-8")
