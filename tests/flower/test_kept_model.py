"""The model of a Flower server is kept with the state of its round, and given back after a restart."""

import logging

import numpy as np
import pytest
from fake_flower import Clock, FakeGrid, content, model
from flwr.app import Array, ArrayRecord, ConfigRecord, Error
from flwr.serverapp.strategy import FedAdagrad, FedAvg

import fedpick as fp
from fedpick.adapters.flower.models import arrays_of
from fedpick.flower import Selected
from fedpick.server import journal as journals
from fedpick.store import read_rounds


def adds(message):
    """Adds one to the model."""
    w = message.content["arrays"]["w"].numpy()
    return 1.0, content(ArrayRecord({"w": Array(w + 1.0)}), train_loss=0.5)


def fails(message):
    return 1.0, Error(2, "raised")


def world(clock: Clock, behaviour=adds) -> FakeGrid:
    return FakeGrid(clock, dict.fromkeys(range(1, 5), behaviour))


def serve(folder, base=None, **options) -> Selected:
    options = {"state": folder / "state", "model": folder / "model"} | options
    return Selected(base or FedAvg(fraction_evaluate=0.0), fp.E3CS(2), **options)


def first(grid: FakeGrid) -> list[float]:
    """The model that was sent first."""
    return grid.sent[0].content["arrays"]["w"].numpy().tolist()


def said(caplog, level: int) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "flwr.fedpick" and each.levelno == level]


def test_a_restarted_server_goes_on_with_its_model(clock: Clock, tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    result = serve(tmp_path).start(world(clock), model(5.0, 5.0), num_rounds=3)
    assert result.arrays["w"].numpy().tolist() == [8.0, 8.0]
    grid, seen = world(clock), []
    again = serve(tmp_path)
    assert again.model["w"].numpy().tolist() == [8.0, 8.0]
    again.start(grid, model(), num_rounds=2, evaluate_fn=lambda number, arrays: seen.append(arrays["w"].numpy()[0]))
    assert first(grid) == [8.0, 8.0]
    assert seen == [8.0, 9.0, 10.0]
    told = f"the model of round 3, kept in {tmp_path / 'model'}, takes the place of initial_arrays"
    assert told in said(caplog, logging.INFO)
    assert said(caplog, logging.WARNING) == []


def test_a_continued_state_with_a_fresh_model_is_a_warning_and_in_the_records(clock: Clock, tmp_path, caplog) -> None:
    options = {"model": None, "records": tmp_path / "run"}
    arrays = serve(tmp_path, **options).start(world(clock), model(), num_rounds=2).arrays
    arrays = serve(tmp_path, **options).start(world(clock), arrays, num_rounds=1).arrays  # as the user kept it
    assert said(caplog, logging.WARNING) == []
    serve(tmp_path, **options).start(world(clock), model(), num_rounds=2)
    assert len(said(caplog, logging.WARNING)) == 1
    assert said(caplog, logging.WARNING)[0].startswith(
        "the state continues after round 3, but not with the model of that round: the server starts with another one"
    )
    assert "give model='folder', to keep it, or start with the model of round 3" in caplog.text
    assert read_rounds(tmp_path / "run")["fresh_model"].to_pylist() == [None, None, None, 1.0, None]


def test_killed_after_the_model_was_written_and_before_the_state_was(clock: Clock, tmp_path, monkeypatch) -> None:
    serve(tmp_path).start(world(clock), model(), num_rounds=2)

    def killed(*_) -> None:
        raise KeyboardInterrupt

    strategy = serve(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(journals.Journal, "append", killed)
        patch.setattr(strategy.session, "close", lambda: None)  # as the end of its process
        with pytest.raises(KeyboardInterrupt):
            strategy.start(world(clock), model(), num_rounds=1)
    strategy.session.memory.unlock()
    assert len(list((tmp_path / "model").iterdir())) == 3
    grid, again = world(clock), serve(tmp_path)
    assert again.round == 2
    again.start(grid, model(), num_rounds=1)
    assert first(grid) == [2.0, 2.0]


def test_without_a_usable_update_the_model_stays_and_it_is_said(clock: Clock, tmp_path, caplog) -> None:
    serve(tmp_path).start(world(clock), model(5.0, 5.0), num_rounds=1)
    serve(tmp_path).start(world(clock, fails), model(), num_rounds=2)
    assert "round 2: no update can be used, so that the model does not change; 2 failed" in caplog.text
    assert serve(tmp_path).model["w"].numpy().tolist() == [6.0, 6.0]


def test_a_model_that_the_base_could_not_make_is_that_of_before(clock: Clock, tmp_path) -> None:
    class Broken(FedAvg):
        def aggregate_train(self, server_round, replies):
            if server_round == 2:
                raise ValueError("broken")
            return super().aggregate_train(server_round, replies)

    serve(tmp_path, Broken(fraction_evaluate=0.0)).start(world(clock), model(), num_rounds=2)
    assert serve(tmp_path).model["w"].numpy().tolist() == [1.0, 1.0]


def test_what_the_base_adds_is_kept(clock: Clock, tmp_path) -> None:
    base = FedAdagrad(fraction_evaluate=0.0)
    result = serve(tmp_path, base).start(world(clock), model(), num_rounds=2)
    np.testing.assert_array_equal(serve(tmp_path).model["w"].numpy(), result.arrays["w"].numpy())


def test_another_model_than_the_kept_one_is_refused(clock: Clock, tmp_path) -> None:
    serve(tmp_path).start(world(clock), model(), num_rounds=1)
    grid = world(clock)
    with pytest.raises(
        fp.ContractError, match=r"the model kept after round 1 has arrays .*but initial_arrays has .*'v'"
    ):
        serve(tmp_path).start(grid, ArrayRecord({"v": Array(np.zeros(2))}), num_rounds=1)
    assert grid.sent == []


def test_what_cannot_be_kept_or_given_back_is_refused_at_the_start(clock: Clock, tmp_path) -> None:
    class Own(FedAvg):
        def start(self, grid, *args, **options):
            return super().start(grid, *args, **options)

    strange = ArrayRecord({"w": Array(dtype="float32", shape=(1,), stype="my.format", data=b"1234")})
    with pytest.raises(fp.ContractError, match=r"initial_arrays\['w'\] is float32 as my.format, and only NumPy arrays"):
        serve(tmp_path).start(world(clock), strange, num_rounds=1)
    with pytest.raises(fp.ContractError, match="start\\(\\) has no initial_arrays to replace; pass it by this name"):
        serve(tmp_path, Own()).start(world(clock), model(), num_rounds=1)
    for _ in range(2):
        grid = world(clock)
        serve(tmp_path, Own(fraction_evaluate=0.0)).start(grid, initial_arrays=model(), num_rounds=1)
    assert first(grid) == [1.0, 1.0]


def test_arrays_in_a_format_of_ones_own_are_kept_as_bytes_and_refused_as_a_model(clock: Clock, tmp_path) -> None:
    own = Array(dtype="float32", shape=(1,), stype="my.format", data=b"1234")
    found = arrays_of(ArrayRecord({"w": Array(np.array([1.5])), "own": own}))
    assert found["w"].tolist() == [1.5]
    assert found["own"].tobytes() == b"1234"
    texts = ArrayRecord({"w": Array(np.array([1.5])), "names": Array(np.array(["a", "b"]))})
    with pytest.raises(fp.ContractError, match=r"initial_arrays\['names'\] is <U1 as numpy.ndarray, and only NumPy"):
        serve(tmp_path).start(world(clock), texts, num_rounds=1)


def test_a_loop_of_ones_own_that_does_not_ask_for_the_model_is_warned(clock: Clock, tmp_path, caplog) -> None:
    serve(tmp_path).start(world(clock), model(), num_rounds=1)
    strategy = serve(tmp_path)
    list(strategy.configure_train(1, model(), ConfigRecord(), world(clock)))
    strategy.session.close()
    assert "one may be kept, but it was not asked for" in caplog.text
    caplog.clear()
    strategy = serve(tmp_path)
    list(strategy.configure_train(1, strategy.model, ConfigRecord(), world(clock)))
    strategy.session.close()
    assert "not asked for" not in caplog.text


def test_names_that_do_not_survive_a_restart_are_a_warning_with_flowers_remedy(clock: Clock, tmp_path, caplog) -> None:
    serve(tmp_path).start(world(clock), model(), num_rounds=1)
    serve(tmp_path).start(FakeGrid(clock, dict.fromkeys((11, 12, 13), adds)), model(), num_rounds=1)
    (told,) = said(caplog, logging.WARNING)
    assert told.startswith("round 2: none of the 4 clients known before the restart has returned: then 'node:1', now")
    assert "start each SuperNode with a key (--auth-supernode-private-key), or with a client-id" in told
