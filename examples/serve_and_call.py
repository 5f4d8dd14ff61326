"""Serve a model over HTTP and call it.

A model folder is all the service needs: `deepsets serve model/`. Here the server runs as a child process and is asked
over HTTP, as any program in any language would.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import Request, urlopen

import matplotlib.pyplot as plt
import numpy as np

import deepsets
from deepsets.estimators import SetClassifier


def bags(count: int, seed: int) -> tuple[list[np.ndarray], list[str]]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(["narrow", "wide"], size=count)
    return [rng.normal(scale=1 if y == "narrow" else 2, size=(rng.integers(5, 20), 2)) for y in labels], list(labels)


def main(quick: bool = False) -> plt.Figure:
    X, y = bags(60 if quick else 300, 0)
    model = SetClassifier(model="linear", random_state=0).fit(X, y)
    asked, truth = bags(20 if quick else 100, 1)
    with tempfile.TemporaryDirectory() as folder:
        path = deepsets.save(model, Path(folder) / "widths")
        command = [sys.executable, "-m", "deepsets", "serve", str(path), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            assert server.stdout is not None
            url = re.search(r"http://\S+?/", server.stdout.readline())[0]
            try:
                body = json.dumps({"sets": [x.round(4).tolist() for x in asked]}).encode()
                request = Request(url + "v1/predict", body, {"content-type": "application/json"})
                with urlopen(request, timeout=30) as response:
                    answer = json.load(response)
            finally:
                server.terminate()
    share = np.array(answer["probabilities"])[:, 1]
    accuracy = np.mean([a == b for a, b in zip(answer["predictions"], truth, strict=True)])
    print(f"{len(asked)} sets answered by {answer['model']!r}, accuracy {accuracy:.2f}")
    figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
    ax.hist([share[np.array(truth) == name] for name in ("narrow", "wide")], bins=15, label=["narrow", "wide"])
    ax.set(xlabel="probability of “wide”, from the service", ylabel="sets")
    ax.legend(title="truth")
    return figure


if __name__ == "__main__":
    main().savefig("serve_and_call.png", dpi=120)
