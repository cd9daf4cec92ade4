"""Experiments: what is run (`config`) and where (`executors`)."""

from fedpick.experiment.config import PARTS, Config, build_world, load

__all__ = ["PARTS", "Config", "build_world", "load"]
