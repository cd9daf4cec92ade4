"""Devices: set before JAX is imported, with the user's own flags kept, and no GPU claimed by looking for one."""

import os
import sys

import pytest

from fedpick._support import devices

COUNT = "--xla_force_host_platform_device_count"


@pytest.fixture
def before_jax(monkeypatch):
    """As in a process that has not imported JAX and has no flags."""
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    monkeypatch.setenv("XLA_FLAGS", "")
    return monkeypatch


def asked():
    """The number of devices that the flags ask for."""
    found = [flag for flag in os.environ["XLA_FLAGS"].split() if flag.startswith(COUNT)]
    return [int(flag.split("=")[1]) for flag in found]


def test_one_device_for_each_core(before_jax):
    devices.reserve()
    assert asked() == [devices.cores()]


def test_other_flags_stay_and_a_number_is_replaced_only_when_one_is_given(before_jax):
    before_jax.setenv("XLA_FLAGS", f"--xla_dump_to=/tmp/x {COUNT}=7")
    devices.reserve()
    assert asked() == [7]
    devices.reserve(3)
    assert asked() == [3]
    assert "--xla_dump_to=/tmp/x" in os.environ["XLA_FLAGS"].split()


def test_nothing_changes_once_jax_is_imported(before_jax):
    before_jax.setitem(sys.modules, "jax", object())
    devices.reserve(5)
    assert asked() == []


@pytest.mark.parametrize(
    ("variables", "there"),
    [
        ({}, True),
        ({"JAX_PLATFORMS": "cpu"}, False),
        ({"JAX_PLATFORMS": "cuda,cpu"}, True),
        ({"CUDA_VISIBLE_DEVICES": ""}, False),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, False),
        ({"CUDA_VISIBLE_DEVICES": "0"}, True),
    ],
)
def test_a_gpu_is_there_if_its_driver_and_jaxs_plugin_are_and_nobody_hides_it(variables, there, monkeypatch, tmp_path):
    node = tmp_path / "nvidiactl"
    node.touch()
    monkeypatch.setattr(devices, "_NODES", (str(node),))
    monkeypatch.setattr(devices, "find_spec", lambda name: object())
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert devices.gpu_there() is there
    node.unlink()
    assert devices.gpu_there() is False
