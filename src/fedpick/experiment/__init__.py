"""Experiments: what should exist (`plan`), one run of it (`config`), where it is kept (`shelf`), where it is played
(`executors`).
"""

from fedpick.experiment.building import PARTS, build_world
from fedpick.experiment.config import Config
from fedpick.experiment.files import load, load_experiment
from fedpick.experiment.plan import Experiment

__all__ = ["PARTS", "Config", "Experiment", "build_world", "load", "load_experiment"]
