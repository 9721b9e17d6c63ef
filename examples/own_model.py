"""Your own model on your own data: federated dynamic sparse training on images that this script makes up.

python examples/own_model.py
"""

import numpy as np
from torch import nn

import feddst

# 1,200 noisy images of 12×12 pixels in three classes: lying, standing and slanting stripes, each with its own phase.
NAMES = ("lying", "standing", "slanting")
rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 1200)
y, x = np.mgrid[0:12, 0:12]
waves = np.sin(np.stack([y, x, x + y])[labels] + rng.uniform(0, 2 * np.pi, (1200, 1, 1)))
images = (waves + rng.normal(0, 1.5, waves.shape)).astype("float32")[:, None]
data = feddst.Dataset.from_arrays(train=(images[:900], labels[:900]), test=(images[900:], labels[900:]))


class Network(nn.Sequential):
    """Any nn.Module will do; a chain of layers like this one is trained by the compiled kernels."""

    def __init__(self) -> None:
        features = (nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        super().__init__(*features, nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 3))


# Ten clients with images of two of the classes each; five of them train in a round, with a fifth of the weights.
config = feddst.configure(
    method="feddst",
    rounds=30,
    data={"clients": 10, "classes_per_client": 2, "images_per_class": 40},
    cohort={"size": 5},
    sparsity={"level": 0.8},
    readjust={"every": 3, "until": 20, "alpha": 0.1},
)
result = feddst.run(config, model=Network, data=data)

last = result.rows[-1]
print(f"{last.accuracy:.1%} mean client accuracy after {last.round} rounds, with {last.density:.0%} of the weights")
print(f"{last.upload_bytes / 2**20:.2f} MiB sent up and {last.download_bytes / 2**20:.2f} MiB down")

scores = result.model(data.inputs(data.test_images[:1]))
print(f"the first test image: {NAMES[labels[900]]}; the model says {NAMES[int(scores.argmax())]}")
