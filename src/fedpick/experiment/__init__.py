"""Experiments: the plan of runs (`plan`), one run's settings (`config`), the folder of the runs (`shelf`), the missing
runs (`work`), and where they are executed (`executors`).
"""

from fedpick.experiment.config import Config
from fedpick.experiment.files import load, load_experiment
from fedpick.experiment.plan import Experiment
from fedpick.experiment.trainers import build_trainer
from fedpick.experiment.worlds import PARTS, build_world

__all__ = ["PARTS", "Config", "Experiment", "build_trainer", "build_world", "load", "load_experiment"]
