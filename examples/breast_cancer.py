"""A yes or a no: is a tumour malignant, from thirty measurements of its cells? Ten hospitals of unequal size.

pip install scikit-learn
python examples/breast_cancer.py
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

import feddst

SPARSE: dict[str, Any] = {"sparsity": {"level": 0.8}, "readjust": {"every": 5, "until": 20}}

# 569 patients. Each measurement gets mean 0 and deviation 1; yes (1) is malignant.
found = load_breast_cancer()
order = np.random.default_rng(0).permutation(len(found.target))
train, test = order[:440], order[440:]
inputs = ((found.data - found.data[train].mean(axis=0)) / found.data[train].std(axis=0)).astype("float32")
targets = 1 - found.target
data = feddst.Dataset.of(
    (inputs[train], targets[train]),
    (inputs[test], targets[test]),
    name="breast cancer",
    classes=("benign", "malignant"),
)

for method, own in (("fedavgm", {}), ("feddst", SPARSE)):
    config = feddst.configure(
        method=method,
        rounds=30,
        data={"partition": "dirichlet", "beta": 1.0, "clients": 10},
        cohort={"size": 5},
        engine={"kind": "reference", "workers": 1},  # so little needs no other process
        local={"objective": "binary", "lr": 0.03, "epochs": 2},
        **own,
    )
    result = feddst.run(config, data=data)  # the built-in mlp, since inputs are rows of numbers
    last = result.rows[-1]
    area = last.others["auc_global"]
    print(
        f"{method}: {last.score_global:.1%} of all test patients right, area under the curve {area:.3f}, "
        f"after {last.upload_bytes / 2**10:,.0f} KiB sent up"
    )
