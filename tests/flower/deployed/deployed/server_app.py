"""E3CS among all that are connected; what happened is written after each round."""

import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import fedpick as fp
import fedpick.flower

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    out = Path(str(context.run_config["out"]))
    base = FedAvg(fraction_evaluate=0.0)
    policy = fp.E3CS(cohort_size=6, quota=0.5)
    deadline = float(context.run_config["deadline"])
    strategy = fedpick.flower.Selected(base, policy, deadline=deadline, wait=60.0, state=out / "state")
    told: list[dict] = []

    def tell(round: int, arrays: ArrayRecord) -> None:
        if round:
            last = strategy.last
            strategy.wait = 5.0  # for all six only at first
            told.append(
                {
                    "round": last.round,
                    "seconds": last.seconds,
                    "names": [strategy.roster.names[k] for k in last.clients],
                    "status": last.status.tolist(),
                    "duration": last.duration.tolist(),
                    "loss": last.loss.tolist(),
                    "w": arrays["w"].numpy().tolist(),
                }
            )
            part = out / "told.part"
            part.write_text(json.dumps(told))
            part.replace(out / "told.json")

    start = ArrayRecord({"w": Array(np.zeros(3))})
    strategy.start(grid, start, num_rounds=int(context.run_config["rounds"]), evaluate_fn=tell)
