"""What runs on the server. The lines with `policy` and `Selected` are all that fedpick adds."""

from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import fedpick as fp
import fedpick.flower
from flower_numpy.task import start

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for a number of rounds."""
    policy = fp.Guard(fp.E3CS(cohort_size=int(context.run_config["cohort-size"])))
    base = FedAvg(fraction_evaluate=0.2)
    strategy = fedpick.flower.Selected(base, policy, state="fedpick-state/", model="fedpick-model/")
    strategy.start(
        grid,
        initial_arrays=ArrayRecord({"model": Array(start())}),
        num_rounds=int(context.run_config["num-server-rounds"]),
    )
    print(f"fedpick: {strategy.round} rounds in all, {len(strategy.roster.names)} clients known")
