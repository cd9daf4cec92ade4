"""Work in flight: the tasks that clients are given, how each ends, and what it counts for. All drivers share it.

A *task* is one client's work on one version of the model (`Task`). The clients asked at one time are a `Cohort`, which
says what each answer counts as. Tasks that go on after their round was closed are in the `Flight`. A *pace* (`Rounds`)
says when clients are asked and when the model moves. Under `Buffered` there are no rounds: tasks end in a `Stream`, and
`asking` lets the policy choose and learn. Simulated and stacked runs, sessions, Flower and NVFlare carry messages; the
rules are here alone.
"""

from fedpick.engine.cohort import Cohort
from fedpick.engine.flight import Flight, Task
from fedpick.engine.paces import Buffered, Pace, Rounds
from fedpick.engine.stream import Ended, Job, Stream

__all__ = ["Buffered", "Cohort", "Ended", "Flight", "Job", "Pace", "Rounds", "Stream", "Task"]
