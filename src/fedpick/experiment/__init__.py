"""Experiments: which runs to make (`plan`), one run's settings (`config`), the folder of the runs (`shelf`), and where
they are executed (`executors`).
"""

from fedpick.experiment.building import PARTS, build_trainer, build_world
from fedpick.experiment.config import Config
from fedpick.experiment.files import load, load_experiment
from fedpick.experiment.plan import Experiment

__all__ = ["PARTS", "Config", "Experiment", "build_trainer", "build_world", "load", "load_experiment"]
