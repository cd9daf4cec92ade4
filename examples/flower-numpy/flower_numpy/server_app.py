"""What runs on the server. The line with `Selected` is all that fedpick adds."""

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
    strategy = fedpick.flower.Selected(FedAvg(fraction_evaluate=0.2), fp.E3CS(cohort_size=10), state="fedpick-state/")
    strategy.start(
        grid,
        initial_arrays=ArrayRecord({"model": Array(start())}),
        num_rounds=int(context.run_config["num-server-rounds"]),
    )
    print(f"fedpick: {strategy.round} rounds in all, {len(strategy.roster.names)} clients known")
