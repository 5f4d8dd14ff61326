#!/usr/bin/env bash
# Install a wheel in an empty environment outside of the source tree, and use it as a new user would.
set -euo pipefail
wheel=$(realpath "$1")
constraints=$(realpath "$(dirname "$0")/../constraints.txt")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/pip install --quiet --disable-pip-version-check -c "$constraints" "$wheel"
env/bin/python - <<'PYTHON'
import numpy as np
import deepsets
from deepsets.estimators import SetClassifier

rng = np.random.default_rng(0)
X = [rng.normal(size=(rng.integers(3, 9), 2)) + (i % 2) for i in range(60)]
y = [i % 2 for i in range(60)]
model = SetClassifier(random_state=0).fit(X[:40], y[:40])
accuracy = float((model.predict(X[40:]) == y[40:]).mean())
path = deepsets.save(model, "model")
same = bool((deepsets.load(path).predict(X) == model.predict(X)).all())
print(f"deepsets {deepsets.__version__}: accuracy {accuracy:.2f}, saved and loaded: {same}")
assert accuracy > 0.8 and same
PYTHON
env/bin/deepsets --version
env/bin/deepsets expand lion tiger leopard
