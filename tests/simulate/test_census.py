"""What is recorded of each client: its data, its class in the world."""

import numpy as np

import fedpick as fp
from fedpick.simulate.census import census


def test_each_client_has_its_size_label_class_and_seconds():
    clients = fp.Clients([5, 7, 9], labels=[[4, 1], [0, 7], [2, 7]])
    world = fp.World(
        clients, volatility=fp.worlds.SuccessRates([0.2, 0.5, 1.0]), latency=fp.worlds.PerClient([3, 1, 2])
    )
    found = {name: values.tolist() for name, values in census(world, 0).items()}
    assert found == {"size": [5, 7, 9], "label": [0, 1, 1], "success": [np.float32(0.2), 0.5, 1], "seconds": [3, 1, 2]}


def test_typical_seconds_order_clients_as_their_means_do():
    world = fp.worlds.named("bsfl", 30)
    typical, mean = census(world, 3)["seconds"], world.truth(3)["times"]
    thirds = [np.argsort(values)[:10] for values in (typical, mean)]
    assert len(np.intersect1d(*thirds)) >= 7


def test_of_many_clients_only_what_costs_nothing_is_told():
    assert set(census(fp.worlds.named("e3cs", 10_001), 0)) == {"size"}


class Coarse(fp.worlds.Reliable):
    """Of the user's own: it knows the rates of classes and not of clients."""

    def truth(self, memory, clients):
        return {"success": [0.5, 1.0]}


def test_rates_that_are_not_one_for_each_client_are_not_recorded():
    world = fp.World(fp.Clients([5, 7, 9]), volatility=Coarse(), latency=fp.worlds.PerClient(1.0))
    assert set(census(world, 0)) == {"size", "seconds"}
