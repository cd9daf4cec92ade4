"""What runs on the server. The lines with `policy` and `Selected` are all that fedpick adds."""

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import fedpick as fp
import fedpick.flower
from flower_pytorch.task import Net, load_test, test

app = ServerApp()
# In the folder where the SuperLink was started; after a restart, Selected goes on with the model that is kept there.
FOLDERS = {"state": "fedpick-state/", "model": "fedpick-model/", "records": "fedpick-run/"}


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for a number of rounds; a second run continues where the first ended."""
    torch.manual_seed(0)
    net = Net()
    cohort = int(context.run_config["cohort-size"])
    policy = fp.Guard(fp.PowerOfChoice(cohort, candidates=2 * cohort, variant="cpow-d"))
    base = FedAvg(fraction_evaluate=0.0)
    strategy = fedpick.flower.Selected(base, policy, **FOLDERS, deadline=300)

    def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord:
        net.load_state_dict(arrays.to_torch_state_dict())
        loss, accuracy = test(net, load_test())
        print(f"after {strategy.round} rounds: test accuracy {accuracy:.3f}, loss {loss:.3f}")
        return MetricRecord({"accuracy": accuracy, "loss": loss})

    strategy.start(
        grid,
        initial_arrays=ArrayRecord(net.state_dict()),
        num_rounds=int(context.run_config["num-server-rounds"]),
        evaluate_fn=evaluate,
    )
    print(f"fedpick: {strategy.round} rounds in all, {len(strategy.roster.names)} clients known")
