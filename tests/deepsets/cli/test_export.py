"""`deepsets export`: ONNX files that compute what the estimators compute."""

import numpy as np
import pytest

import deepsets

from .commands import SIZES, fit, frame, run


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deep", "sign", "odd"])
def test_onnxruntime_computes_the_predictions_of_the_estimator(name, models, table, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    path = models / name
    if name == "deep":
        path = tmp_path / "deep"
        fit(table, "tall", path, "--model", "deep", "--epochs", 1, "--width", 8, "--z-columns", "k")
    run("export", path, "-o", tmp_path / "model.onnx")
    model, data = deepsets.load(path), frame().iloc[: int(SIZES[:15].sum())]
    X = deepsets.Sets.from_frame(data, by="box", columns=["a", "b"])
    feed = {"values": data[["a", "b"]].to_numpy(np.float32), "offsets": np.concatenate([[0], np.cumsum(SIZES[:15])])}
    z = data.groupby("box", sort=False)[["k"]].first().to_numpy(np.float32) if name == "deep" else None
    feed |= {} if z is None else {"z": z}
    output = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["output"], feed)[0]
    wanted = model.predict_proba(X, z=z)
    wanted = np.concatenate(wanted) if isinstance(wanted, list) else wanted
    np.testing.assert_allclose(output, wanted.reshape(output.shape), rtol=1e-4, atol=1e-5)


def test_models_that_are_no_network_are_refused_with_a_sentence(models, tmp_path):
    output = run("export", models / "tall", "-o", tmp_path / "model.onnx", code=1)
    assert "found a blend of linear. Fit it with model='deep'" in output
    output = run("export", models / "mixed", "-o", tmp_path / "model.onnx", code=1)
    assert "cannot be exported to ONNX" in output
