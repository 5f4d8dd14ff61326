"""`deepsets explain`: contributions of members."""

import numpy as np

import deepsets

from .commands import frame, pd, run


def test_explain_writes_what_each_member_contributes(models, table, tmp_path):
    run("explain", models / "top", table, "-o", tmp_path / "top.parquet")
    run("explain", models / "tall", table, "-o", tmp_path / "tall.parquet")
    found = pd.read_parquet(tmp_path / "top.parquet")
    wanted = np.asarray(deepsets.load(models / "top").explain(frame())).reshape(len(found), -1)
    np.testing.assert_allclose(found["contribution"], wanted[:, 0], rtol=1e-4, atol=1e-5)
    columns = ["box", "member", "contribution_0", "contribution_1"]
    assert pd.read_parquet(tmp_path / "tall.parquet").columns.tolist() == columns
    said = run("explain", models / "sum", table, "-o", tmp_path / "x.csv", code=1)
    assert "explain needs a model with one prediction per set" in said
