"""Asynchronous runs stacked into one call: the same as alone, in fewer calls; errors, checkpoints and comparisons."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedpick as fp
from fedpick import worlds
from fedpick.core.errors import SettingError
from fedpick.learn.trainer import Trainer
from fedpick.simulate.together import RunError, play_together
from fedpick.store import read_rounds, read_selections

pytestmark = pytest.mark.usefixtures("quick_start")
PACE = fp.Buffered(6, size=3, timeout=60.0)


def run(seed: int, policy: Any = None, pace: Any = PACE, data_seed: int = 0, **settings: Any) -> fp.Run:
    data = fp.data.Synthetic(1.0, 1.0)(num_clients=12, rng=fp.rng.stream(data_seed, 0, "data"))
    trainer = Trainer(data, fp.learn.logistic((60,), 10), batch=8, steps=2, evaluate_every=4, **settings)
    world = fp.World(
        data.clients, latency=worlds.LogNormalTime(), volatility=worlds.SuccessRates((0.9,)), epochs=(1, 2)
    )
    return fp.Run(policy or fp.Uniform(6), world, seed, trainer, pace=pace)


def runs() -> list[fp.Run]:
    reports = ("squared_loss", "update_norm")
    return [
        run(0),
        run(1),
        run(2, fp.Pisces(6), reports=reports),
        run(3, pace=fp.Buffered(4, size=1, mixing="polynomial")),
        run(4, pace=fp.Buffered(9, size=None, bound=3), server="fedavgm(0.5)"),
    ]


def test_runs_are_the_same_as_alone_in_fewer_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = Trainer.train_all, []

    def train_all(self: Any, *args: Any) -> Any:
        calls.append(1)
        return real(self, *args)

    monkeypatch.setattr(Trainer, "train_all", train_all)
    together = list(play_together(runs(), until=16))
    stacked = len(calls)
    alone = [list(each.rounds(until=16)) for each in runs()]
    assert stacked < 0.5 * (len(calls) - stacked)
    for r, records in enumerate(alone):
        for mine, wanted in zip([each[r] for each in together], records, strict=True):
            assert (mine.round, mine.clock, mine.asked, mine.flying) == (
                wanted.round,
                wanted.clock,
                wanted.asked,
                wanted.flying,
            )
            np.testing.assert_array_equal(mine.ids, wanted.ids)
            np.testing.assert_allclose(mine.loss, wanted.loss, rtol=1e-4)  # float32, in products of other shapes
            assert [each.weight for each in mine.tasks or ()] == [each.weight for each in wanted.tasks or ()]
            assert mine.metrics == pytest.approx(wanted.metrics, rel=1e-4)


def test_an_error_says_whose_it_is() -> None:
    class Tired(fp.Uniform):
        def select(self, state: Any, view: Any, rng: Any) -> Any:
            if view.version == 2:
                raise ZeroDivisionError("tired")
            return super().select(state, view, rng)

    with pytest.raises(RunError, match="run 1 of those played together: tired"):
        list(play_together([run(0), run(1, Tired(6))], until=5))


def test_rounds_and_versions_are_not_played_together() -> None:
    with pytest.raises(SettingError, match="must all be in rounds"):
        next(play_together([run(0), run(1, pace=fp.Rounds())], until=1))


@pytest.mark.slow
def test_a_stacked_comparison_is_that_of_runs_one_by_one(tmp_path: Any) -> None:
    found = {}
    for executor in ("stacked", "serial"):
        results = fp.compare(
            ["uniform", "pisces"],
            data="synthetic",
            pace=["buffered(concurrency=6, size=3)", "rounds"],
            seeds=2,
            rounds=8,
            cohort_size=6,
            executor=executor,
            out=tmp_path / executor,
        )
        assert len(list((tmp_path / executor).rglob("manifest.json"))) == 8
        found[executor] = results
    folders = [sorted(each.parent for each in (tmp_path / name).rglob("manifest.json")) for name in found]
    for mine, wanted in zip(*folders, strict=True):
        one, other = (read_selections(each).to_pydict() for each in (mine, wanted))
        assert one.keys() == other.keys()
        assert one["client"] == other["client"]
        clocks = [read_rounds(each).to_pydict()["clock"] for each in (mine, wanted)]
        assert clocks[0] == clocks[1]


def test_each_run_trains_on_its_own_part_of_the_data() -> None:
    """Of two partitions of one data set, with clients of the same sizes: as alone, and not alike."""

    def turned() -> fp.Run:
        found = run(0)
        assert isinstance(found.trainer, Trainer)
        data = found.trainer.data
        found.trainer = replace(found.trainer, data=replace(data, examples=data.examples[::-1].copy()))
        return found

    both = list(play_together([run(0), turned()], until=4))
    for at, alone in enumerate((run(0), turned())):
        for mine, wanted in zip([each[at] for each in both], alone.rounds(until=4), strict=True):
            np.testing.assert_allclose(mine.loss, wanted.loss, rtol=1e-4)
    assert any(not np.allclose(one.loss, other.loss, rtol=1e-2) for one, other in both)
