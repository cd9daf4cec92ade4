"""Policies in turn, as the plan says; what happened is written after each round."""

import json
import os
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp, strategy
from flwr.serverapp.strategy import FedAvg

import fedpick as fp
import fedpick.flower
from fedpick.server import Lateness

app = ServerApp()


def policy_of(name: str, cohort: int) -> fp.Policy:
    """The policy that the plan names."""
    return fp.policy("e3cs(quota=0.5)" if name == "e3cs" else name, cohort_size=cohort)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Play the plan: "e3cs 6 3, pow-d 2 1" is three rounds of E3CS with cohorts of 6, then one of Power-of-Choice.

    With size=2, there are no rounds: each version of the model has two answers, and so many clients work at a time. A
    fourth word, as in "random 3 5 FedAdam", is another base than FedAvg.
    """
    config = context.run_config
    out = Path(str(config["out"]))
    while len(list(grid.get_node_ids())) < int(config["nodes"]):  # so that all runs enrol alike
        time.sleep(0.2)
    for step in str(config["plan"]).split(","):
        name, cohort, rounds, *other = step.split()
        options = {"deadline": float(config["deadline"]), "late": Lateness(int(config["late"]), beta=0.0)}
        policy = policy_of(name, int(cohort))
        if config["size"]:
            options = {"pace": fp.Buffered(int(cohort), size=int(config["size"]), timeout=float(config["deadline"]))}
        base = getattr(strategy, other[0] if other else "FedAvg")(fraction_evaluate=0.0)
        name = "-".join([name, *other])
        if config["keep"]:
            options["model"] = out / "model"
        if config["approved"]:  # so many nodes, those registered first; all that are approved evaluate
            ordered = sorted(grid.get_nodes(), key=lambda info: info.registered_at)
            approved = {str(info.node_id) for info in ordered[: int(config["approved"])]}
            options |= {"identity": lambda info: str(info.node_id), "eligible": approved.__contains__}
            base = FedAvg(fraction_evaluate=1.0)
        play(grid, out, name, base, policy, int(rounds), options)


def play(grid: Grid, out: Path, name: str, base: FedAvg, policy: fp.Policy, rounds: int, options: dict) -> None:
    """Rounds of one policy; a plan that was cut off goes on from what was told, or from the model that was kept."""
    file = out / "told.json"
    told = json.loads(file.read_text()) if file.exists() else []
    selected = fedpick.flower.Selected(
        base,
        policy,
        state=out / f"state-{name}",
        records=out / f"records-{name}",
        wait=60.0,
        **options,
    )

    def tell(what: str, **more: object) -> None:
        roster = selected.roster
        state = (
            {field: np.asarray(value).tolist() for field, value in vars(roster.state).items()} if roster.names else {}
        )
        common = {"what": what, "policy": name, "pid": os.getpid(), "round": selected.round}
        told.append(common | {"names": list(roster.names), "state": state} | more)
        part = out / "told.part"
        part.write_text(json.dumps(told))
        part.replace(file)

    def after(round: int, arrays: ArrayRecord) -> None:
        if not round:  # the model before the first round
            if options.get("model"):
                tell("starts", w=arrays["w"].numpy().tolist())
            return
        last = selected.last
        assert last is not None
        tell(
            "round",
            chosen=[selected.roster.names[k] for k in last.ids],
            status=last.status.tolist(),
            loss=last.loss.tolist(),
            seconds=last.seconds,
            messages=last.messages,
            w=arrays["w"].numpy().tolist(),
            tasks=[[each.task.id, each.task.version, each.staleness, each.weight] for each in last.tasks or ()],
        )
        selected.wait = 5.0  # for all only at first: those that faults took away do not come back
        while (out / f"hold-after-{selected.round}").exists():
            time.sleep(0.1)

    tell("begins")
    kept = [entry["w"] for entry in told if entry["policy"] == name and entry["what"] == "round"]
    given_back = kept and not options.get("model")
    start = ArrayRecord({"w": Array(np.asarray(kept[-1] if given_back else np.zeros(3)))})
    selected.start(grid, start, num_rounds=rounds, evaluate_fn=after)
    tell("ends")
