"""Sets of PyTorch Geometric, awkward arrays, AnnData and folders of files, against the real packages."""

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsets import Sets
from tests.strategies import assert_same, ragged_batches

# --------------------------------------------------------------------------------------- PyTorch Geometric


@given(ragged_batches(weights=False), st.randoms(use_true_random=False))
def test_elements_with_a_batch_vector_in_any_order_make_sets(sets, random):
    flat = sets.materialize()
    order = list(range(flat.total))
    random.shuffle(order)
    found = Sets.from_pyg(flat.values[order], batch=flat.set_ids[order], num_sets=len(flat))
    assert torch.equal(found.offsets, flat.offsets)
    for x, y in zip(found, flat, strict=True):
        assert sorted(x.tolist()) == sorted(y.tolist())
    assert_same(Sets.from_pyg(flat.values, ptr=flat.offsets), sets)


def test_elements_of_a_set_keep_their_order():
    found = Sets.from_pyg([1.0, 2.0, 3.0, 4.0], batch=[2, 0, 2, 0])
    assert [x.tolist() for x in found] == [[2, 4], [], [1, 3]]


@given(ragged_batches())
def test_pyg_round_trip(sets):
    pytest.importorskip("torch_geometric")
    data = sets.to_pyg()
    assert data.num_nodes == sets.total
    assert ("weight" in data) == (sets.weights is not None)
    assert_same(Sets.from_pyg(data), Sets(sets.values, sets.offsets, sets.element_ids))


def test_a_pyg_batch_is_read_and_its_aggregations_agree():
    geometric = pytest.importorskip("torch_geometric")
    graphs = [geometric.data.Data(x=torch.randn(n, 3)) for n in (4, 1, 2)]
    batch = geometric.data.Batch.from_data_list(graphs)
    sets = Sets.from_pyg(batch)
    assert sets.sizes.tolist() == [4, 1, 2]
    data = sets.to_pyg()
    pooled = geometric.nn.aggr.MaxAggregation()(data.x, data.batch)
    assert torch.equal(pooled, torch.stack([g.x.amax(0) for g in graphs]))
    assert Sets.from_pyg(graphs[0]).sizes.tolist() == [4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"give batch \(the set of each element\) or ptr \(the offsets\), and not both"),
        ({"batch": [0, 0], "ptr": [0, 2]}, r"give batch .* or ptr .*, and not both"),
        ({"batch": [0]}, r"batch must be one integer for each of the 2 elements; found shape \(1,\)"),
        ({"batch": [0.0, 1.0]}, r"batch must be one integer for each of the 2 elements; found shape \(2,\) of"),
        ({"batch": [0, -1]}, r"batch must not be negative, found -1"),
        ({"batch": [0, 3], "num_sets": 3}, r"batch names set 3, but num_sets is 3"),
        ({"ptr": [0, 3]}, r"offsets end at 3, but there are 2 elements"),
    ],
)
def test_pyg_tensors_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sets.from_pyg(torch.zeros(2, 1), **arguments)


# --------------------------------------------------------------------------------------------------- awkward


@given(ragged_batches(weights=False))
def test_awkward_round_trip(sets):
    pytest.importorskip("awkward")
    array = sets.to_awkward()
    assert array.to_list() == [x.tolist() for x in sets]
    assert_same(Sets.from_awkward(array), sets)


def test_records_of_an_awkward_array_become_features():
    ak = pytest.importorskip("awkward")
    jets = ak.Array([[{"pt": 1.0, "eta": 2.0}, {"pt": 3.0, "eta": 4.0}], [], [{"pt": 5.0, "eta": 6.0}]])
    assert [x.tolist() for x in Sets.from_awkward(jets)] == [[[1, 2], [3, 4]], [], [[5, 6]]]
    assert [x.tolist() for x in Sets.from_awkward(jets.pt[::-1])] == [[5], [], [1, 3]]
    assert [x.tolist() for x in Sets.from_arrow(ak.to_arrow(jets))] == [[[1, 2], [3, 4]], [], [[5, 6]]]


def test_a_missing_awkward_record_is_located():
    ak = pytest.importorskip("awkward")
    with pytest.raises(ValueError, match=r"set 1, element 0 holds a null"):
        Sets.from_awkward(ak.Array([[1.0], [None, 2.0]]))


# ----------------------------------------------------------------------------------------------------- files


def write(path, array):
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["features"] = array
            file["coords"] = np.zeros((len(array), 2))
    else:
        torch.save(torch.from_numpy(array), path)


@pytest.mark.parametrize("suffix", [".npy", ".h5", ".pt"])
def test_a_folder_of_files_is_read_in_the_order_of_names(tmp_path, suffix):
    for name, n in (("b", 2), ("a", 1), ("c", 0)):
        write(tmp_path / f"{name}{suffix}", np.full((n, 3), n, dtype=np.float32))
    (tmp_path / "notes.txt").write_text("not a set")
    key = "features" if suffix == ".h5" else None
    sets = Sets.from_files(tmp_path, key=key)
    assert [x.tolist() for x in sets] == [[[1, 1, 1]], [[2, 2, 2]] * 2, []]
    assert Sets.from_files([tmp_path / f"b{suffix}"], key=key).sizes.tolist() == [2]


def test_a_dict_in_a_file_needs_its_key(tmp_path):
    torch.save({"features": torch.ones(2, 1), "label": torch.tensor(1)}, tmp_path / "a.pt")
    assert Sets.from_files(tmp_path, key="features").sizes.tolist() == [2]
    with pytest.raises(ValueError, match=r"a.pt: key is missing; it holds: features, label"):
        Sets.from_files(tmp_path)


class Harmful:
    """Would create a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_files_never_run_code(tmp_path):
    marker = tmp_path / "marker"
    torch.save(Harmful(marker), tmp_path / "a.pt")
    np.save(tmp_path / "b.npy", np.array([Harmful(marker)], dtype=object), allow_pickle=True)
    for name in ("a.pt", "b.npy"):
        with pytest.raises(ValueError, match=rf"cannot read a set from .*{name}"):
            Sets.from_files([tmp_path / name])
    assert not marker.exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npy", b"not an array", r"cannot read a set from .*a.npy"),
        ("a.h5", b"not an array", r"cannot read a set from .*a.h5"),
        ("a.pt", b"not an array", r"cannot read a set from .*a.pt"),
        ("a.txt", b"1 2 3", r"files must end in .npy, .h5, .hdf5, .pt, .pth"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Sets.from_files([path])


def test_folders_without_sets_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no file that ends in .npy"):
        Sets.from_files(tmp_path)
    with pytest.raises(ValueError, match=r"nowhere is not a folder"):
        Sets.from_files(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        Sets.from_files([tmp_path / "a.npy"])


def test_groups_of_an_hdf5_file_are_not_sets(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["slide/features"] = np.ones((2, 3))
    with pytest.raises(ValueError, match=r"'slide' is a group with features; name a data set in it"):
        Sets.from_files(tmp_path, key="slide")
    assert Sets.from_files(tmp_path, key="slide/features").sizes.tolist() == [2]


# ------------------------------------------------------------------------------------------------- AnnData


def cells():
    anndata = pytest.importorskip("anndata")
    sparse = pytest.importorskip("scipy.sparse")
    counts = np.arange(12, dtype=np.float32).reshape(4, 3)
    obs = pd.DataFrame({"donor": pd.Categorical(["b", "a", "b", "b"]), "day": [1, 1, 1, 2]}, index=list("wxyz"))
    adata = anndata.AnnData(sparse.csr_matrix(counts), obs=obs)
    adata.obsm["X_pca"] = -counts[:, :2].astype(np.float64)
    adata.layers["raw"] = counts.astype(np.int64) * 2
    return adata, counts


def test_cells_of_a_donor_become_a_set():
    adata, counts = cells()
    sets = Sets.from_anndata(adata, by="donor")
    assert [x.tolist() for x in sets] == [counts[[0, 2, 3]].tolist(), counts[[1]].tolist()]
    assert Sets.from_anndata(adata, by=["donor", "day"]).sizes.tolist() == [2, 1, 1]
    assert Sets.from_anndata(adata, by="donor", layer="raw").values.tolist() == (2 * counts[[0, 2, 3, 1]]).tolist()


def test_an_embedding_of_the_cells_can_be_chosen():
    adata, counts = cells()
    sets = Sets.from_anndata(adata, by="donor", obsm="X_pca")
    assert sets.values.tolist() == (-counts[[0, 2, 3, 1], :2]).tolist()
    assert (sets.dtype, sets.offsets.tolist()) == (torch.float64, [0, 3, 4])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "sex"}, r"adata.obs has no 'sex'; it has: donor, day"),
        ({"by": "donor", "obsm": "X_umap"}, r"adata.obsm has no 'X_umap'; it has: X_pca"),
        ({"by": "donor", "layer": "norm"}, r"adata.layers has no 'norm'; it has: raw"),
        ({"by": "donor", "layer": "raw", "obsm": "X_pca"}, r"give obsm or layer, not both"),
    ],
)
def test_what_anndata_does_not_hold_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sets.from_anndata(cells()[0], **arguments)


def test_cells_without_a_donor_are_refused():
    adata, _ = cells()
    adata.obs["donor"] = pd.Categorical(["a", None, "a", "a"])
    with pytest.raises(ValueError, match=r"row 1 has no value in the set column 'donor'"):
        Sets.from_anndata(adata, by="donor")


def test_cells_in_a_file_are_read_in_backed_mode(tmp_path):
    adata, counts = cells()
    adata.write_h5ad(tmp_path / "cells.h5ad")
    backed = pytest.importorskip("anndata").read_h5ad(tmp_path / "cells.h5ad", backed="r")
    assert Sets.from_anndata(backed, by="donor").values.tolist() == counts[[0, 2, 3, 1]].tolist()
    backed.file.close()
