"""The server. `Strategy` takes the place of `FedAvg`; it needs no images, only an example of their shape."""

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

import feddst
from feddst.flower import Strategy
from quickstart.task import Net, test

app = ServerApp()


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Test the global model on the server, where there are images to test on."""
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    accuracy = test(net)
    print(f"round {server_round}: accuracy {100 * accuracy:.1f} %", flush=True)
    return MetricRecord({"accuracy": accuracy})


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and save the model as usual."""
    clients = int(context.run_config["clients"])
    config = feddst.configure(
        method="feddst",
        sparsity={"level": float(context.run_config["sparsity"])},
        data={"clients": clients},
        cohort={"size": clients},
        local={"epochs": 2},
        eval_every=1,
    )
    strategy = Strategy(config, model=Net, example=torch.zeros(1, 1, 28, 28))
    rounds = int(context.run_config["num-server-rounds"])
    result = strategy.start(grid, num_rounds=rounds, evaluate_fn=evaluate)
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
