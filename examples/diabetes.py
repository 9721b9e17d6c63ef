"""Regression with Adam and a cosine schedule: how diabetes goes on, from ten measurements of a patient. Ten clinics.

pip install scikit-learn
python examples/diabetes.py
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes

import feddst

SPARSE: dict[str, Any] = {"sparsity": {"level": 0.8}, "readjust": {"every": 5, "until": 30}}

# 442 patients. Inputs and targets get mean 0 and deviation 1, as a network likes them.
found = load_diabetes()
order = np.random.default_rng(0).permutation(len(found.target))
train, test = order[:360], order[360:]
inputs = (found.data / found.data[train].std(axis=0)).astype("float32")
scale, middle = found.target[train].std(), found.target[train].mean()
targets = ((found.target - middle) / scale).astype("float32")
data = feddst.Dataset.of((inputs[train], targets[train]), (inputs[test], targets[test]), name="diabetes")

print(f"always the mean: an error of {np.sqrt(np.mean((found.target[test] - middle) ** 2)):.1f}")
for method, own in (("fedavgm", {}), ("feddst", SPARSE)):
    config = feddst.configure(
        method=method,
        rounds=40,
        data={"partition": "iid", "clients": 10, "classes_per_client": 1, "images_per_class": 36},
        cohort={"size": 5},
        engine={"kind": "reference", "workers": 1},  # so little needs no other process
        local={
            "objective": "squared-error",
            "optimizer": "adam",
            "schedule": "cosine",
            "lr": 0.003,
            "epochs": 2,
            "l2": 0.0,
        },
        **own,
    )
    result = feddst.run(config, data=data)  # the built-in mlp, since inputs are rows of numbers
    last = result.rows[-1]
    print(f"{method}: an error of {last.score_global * scale:.1f} after {last.upload_bytes / 2**10:,.0f} KiB sent up")
