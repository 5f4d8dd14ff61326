"""Model folders: what is loaded is what was saved, and damaged or foreign folders are errors."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import deepsets
from deepsets import ModelFolderError
from deepsets.estimators import (
    MemberClassifier,
    MemberRegressor,
    OddOneOut,
    SetClassifier,
    SetRegressor,
    SupportDistributionMachine,
)
from deepsets.expand import NearestVectors, Popularity
from deepsets.files import locked
from deepsets.io.model_folder import checksum, model_identity

RNG = np.random.default_rng(0)
X = [RNG.normal(size=(RNG.integers(1, 9), 3)) for _ in range(30)]
Z = RNG.normal(size=(30, 2))
TOKENS = [[f"t{v:.0f}" for v in x[:, 0]] for x in X]
WORDS = np.array(["low", "high"])[[int(x.max() > 1.5) for x in X]]
QUICK = {"epochs": 1, "random_state": 0, "width": 8, "n_estimators": 2}
LINEAR = {"model": "linear", "random_state": 0}

CASES = {
    "set regression": (SetRegressor, X, [x.max() for x in X], None),
    "several targets": (SetRegressor, X, [[x.max(), x.min()] for x in X], None),
    "z": (SetRegressor, X, [x.max() for x in X], Z),
    "tokens": (SetRegressor, TOKENS, [len(x) for x in X], None),
    "ids": (SetRegressor, [[len(t) for t in tokens] for tokens in TOKENS], [len(x) for x in X], None),
    "strings": (SetClassifier, X, WORDS, None),
    "objects": (SetClassifier, X, WORDS.astype(object), None),
    "integers": (SetClassifier, X, (WORDS == "low").astype(np.int32) * 7 - 3, None),
    "floats": (SetClassifier, X, (WORDS == "low").astype(np.float32) * 3, None),
    "booleans": (SetClassifier, X, WORDS == "low", None),
    "members": (MemberRegressor, X, [x[:, 0] for x in X], Z),
    "labels of members": (MemberClassifier, X, [x[:, 0] > 0 for x in X], None),
    "sdm": (SupportDistributionMachine, X, [float(x.max()) for x in X], None),
    "odd one out": (OddOneOut, X, [len(x) - 1 for x in X], None),
}


def fitted(name: str = "set regression", **params):
    kind, sets, y, z = CASES[name]
    quick = LINEAR if kind in (SetRegressor, SetClassifier) else {} if name == "sdm" else QUICK
    return kind(**quick | params).fit(sets, y, **({} if z is None else {"z": z}))


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    return deepsets.save(fitted("strings"), tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def change(folder: Path, **entries) -> None:
    """Changes the config and its checksum."""
    config = json.loads((folder / "config.json").read_text())
    for name, value in entries.items():
        if isinstance(value, dict):
            config[name] |= value
        else:
            config[name] = value
    (folder / "config.json").write_text(json.dumps(config | {"sha256": checksum(config)}))


def flat(answer) -> np.ndarray:
    return np.concatenate(answer) if isinstance(answer, list) else answer


@pytest.mark.parametrize("name", CASES)
def test_a_loaded_model_predicts_bit_for_bit_like_the_saved_one(name, tmp_path):
    kind, sets, _, z = CASES[name]
    model = fitted(name)
    generator = torch.get_rng_state()
    loaded = deepsets.load(deepsets.save(model, tmp_path / "model"))
    assert torch.equal(torch.get_rng_state(), generator)
    assert type(loaded) is kind
    for ask in ("predict", "predict_proba"):
        if hasattr(model, ask):
            old, new = (flat(getattr(m, ask)(sets, **({} if z is None else {"z": z}))) for m in (model, loaded))
            assert old.dtype == new.dtype
            assert np.array_equal(old, new)
    if hasattr(model, "classes_"):
        assert loaded.classes_.dtype == model.classes_.dtype
    kept = {name: value for name, value in model.get_params().items() if name not in ("checkpoint_dir", "verbose")}
    assert {name: loaded.get_params()[name] for name in kept} == kept


@pytest.mark.parametrize("head", ["deep", "forest", "boosting"])
def test_every_head_is_saved(head, tmp_path):
    options = QUICK if head == "deep" else {"random_state": 0}
    model = SetClassifier(model=head, **options).fit(X, WORDS, z=Z)
    loaded = deepsets.load(deepsets.save(model, tmp_path / "model"))
    assert np.array_equal(loaded.predict_proba(X, z=Z), model.predict_proba(X, z=Z))


def test_a_loaded_model_continues_training_like_the_saved_one(tmp_path):
    model = fitted("members")
    loaded = deepsets.load(deepsets.save(model, tmp_path / "model"))
    again = [flat(m.partial_fit(X, [x[:, 0] for x in X], z=Z).predict(X, z=Z)) for m in (model, loaded)]
    assert np.array_equal(*again)


def test_a_model_of_a_frame_knows_its_columns(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"box": np.repeat(np.arange(10), 3), "a": RNG.normal(size=30), "b": RNG.normal(size=30)})
    model = SetRegressor(by="box", **LINEAR).fit(frame, np.arange(10.0))
    loaded = deepsets.load(deepsets.save(model, tmp_path / "model"))
    assert np.array_equal(loaded.predict(frame[["b", "box", "a"]]), model.predict(frame))
    assert loaded.feature_names_in_.tolist() == ["a", "b"]


def test_a_model_with_text_and_dates_as_set_level_columns_is_loaded(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"box": np.repeat(np.arange(10), 3), "a": RNG.normal(size=30)})
    frame["place"], frame["level"] = np.where(frame["box"] % 3, "north", "south"), frame["box"] * 1.0
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(frame["box"], unit="D")
    model = SetRegressor(by="box", **LINEAR).fit(frame, np.arange(10.0), z=["place", "level", "day"])
    loaded = deepsets.load(deepsets.save(model, tmp_path / "model"))
    assert np.array_equal(loaded.predict(frame), model.predict(frame))
    array = frame.groupby("box")[["place", "level", "day"]].first().to_numpy()
    assert np.array_equal(loaded.predict(frame, z=array), model.predict(frame))


def test_numbers_of_numpy_are_settings_too(tmp_path):
    model = fitted("members", dropout=np.float64(0.25), batch_size=np.int64(8), random_state=np.random.RandomState(0))
    loaded = deepsets.load(deepsets.save(model, tmp_path / "model"))
    assert (loaded.dropout, loaded.batch_size, loaded.random_state) == (0.25, 8, None)


def test_the_card_says_what_the_model_is(saved):
    card = (saved / "README.md").read_text()
    for part in ("SetClassifier", "'high'", "'low'", "3 features", "30 sets", 'deepsets.load("model")', "torch"):
        assert part in card


def test_a_folder_is_data_only(saved):
    assert sorted(file.name for file in saved.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert json.loads((saved / "config.json").read_text())["format_version"] == 1


def test_importing_the_library_does_not_import_the_estimators():
    code = "import sys, deepsets; deepsets.load; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------------------------------------------------- saving


def test_what_is_no_fitted_estimator_is_refused(tmp_path):
    with pytest.raises(ModelFolderError, match=r"holds one of .*SetRegressor, .*; found a LinearRegression"):
        deepsets.save(LinearRegression(), tmp_path / "model")
    with pytest.raises(NotFittedError, match="there is nothing to save"):
        deepsets.save(SetRegressor(), tmp_path / "model")
    model = fitted("booleans")
    model.classes_ = np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]")
    with pytest.raises(ModelFolderError, match=r"classes_ holds datetime64\[D\] entries"):
        deepsets.save(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_path_is_refused_unless_it_is_a_model_to_overwrite(folder):
    before = (folder / "config.json").read_bytes()
    with pytest.raises(ModelFolderError, match="exists"):
        deepsets.save(fitted(), folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ModelFolderError, match=r"holds 'notes\.txt', no part of a model folder"):
        deepsets.save(fitted(), folder, overwrite=True)
    assert (folder / "config.json").read_bytes() == before
    (folder / "notes.txt").unlink()
    deepsets.save(fitted(), folder, overwrite=True)
    assert type(deepsets.load(folder)) is SetRegressor
    assert [entry.name for entry in folder.parent.iterdir()] == ["model"]


def test_a_file_is_never_overwritten(tmp_path):
    (tmp_path / "model").write_text("mine")
    with pytest.raises(ModelFolderError, match="is not a folder"):
        deepsets.save(fitted(), tmp_path / "model", overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_failure_while_writing_changes_nothing(folder, monkeypatch, overwrite):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("deepsets.io.model_folder.card" if overwrite else "pathlib.Path.write_bytes", fail)
    target = folder if overwrite else folder.with_name("new")
    with pytest.raises(OSError, match="disk full"):
        deepsets.save(fitted(), target, overwrite=overwrite)
    monkeypatch.undo()
    assert [entry.name for entry in folder.parent.iterdir()] == ["model"]
    assert type(deepsets.load(folder)) is SetClassifier


def test_a_second_writer_of_the_same_folder_is_refused(tmp_path):
    with locked(tmp_path / "model"), pytest.raises(OSError, match="is being written by another process"):
        deepsets.save(fitted(), tmp_path / "model")
    deepsets.save(fitted(), tmp_path / "model")


# --------------------------------------------------------------------------------------------------------- loading


def refused(path: Path, match: str) -> None:
    with pytest.raises(ModelFolderError, match=match):
        deepsets.load(path)


def test_what_is_no_model_folder_is_an_error(tmp_path, folder):
    refused(tmp_path / "nowhere", "nowhere does not exist: wanted a model folder")
    refused(folder / "config.json", "is a file")
    (folder / "model.safetensors").unlink()
    refused(folder, r"has no model\.safetensors")
    (folder / "config.json").unlink()
    refused(folder, r"has no config\.json")


@pytest.mark.parametrize("cut", [0, 7, 100, -1])
def test_truncated_weights_are_an_error(folder, cut):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:cut])
    refused(folder, r"is not the file that was saved: the checksum differs")


def test_one_flipped_bit_is_an_error(folder):
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-5] ^= 1
    weights.write_bytes(bytes(data))
    refused(folder, "the checksum differs")


def with_weights(folder: Path, data: bytes) -> None:
    (folder / "model.safetensors").write_bytes(data)
    change(folder, weights={"sha256": hashlib.sha256(data).hexdigest()})


def test_weights_that_are_no_safetensors_are_an_error_even_with_a_right_checksum(folder):
    with_weights(folder, b"\x80\x04\x95 a pickle, or anything")
    refused(folder, "is not a safetensors file")


def test_tensors_that_do_not_fit_are_errors(tmp_path):
    folder = deepsets.save(fitted("members"), tmp_path / "model")
    tensors = safetensors.torch.load((folder / "model.safetensors").read_bytes())
    name = next(n for n in tensors if n.endswith("weight") and tensors[n].ndim == 2)
    with_weights(folder, safetensors.torch.save({**tensors, name: tensors[name][:, :1].contiguous()}))
    refused(folder, "have shape .* wanted")
    with_weights(folder, safetensors.torch.save({**tensors, name: tensors[name].double()}))
    refused(folder, "float64")
    with_weights(folder, safetensors.torch.save({n: t for n, t in tensors.items() if n != name}))
    refused(folder, "lack the tensor")
    with_weights(folder, safetensors.torch.save({**tensors, "network.extra": torch.zeros(1)}))
    refused(folder, "have a tensor 'extra' that is not expected")
    with_weights(folder, safetensors.torch.save(tensors))
    deepsets.load(folder)
    change(folder, params={"width": 9})
    refused(folder, "wanted|do not fit")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "not valid JSON"),
        ('{"format": "deepsets-mod', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        ("[1, 2]", "was not written by this library: .* found 'list'"),
        ('{"architectures": ["BertModel"]}', "was not written by this library: .* found None"),
        ('{"format": "deepsets-model"}', "no valid format_version: found None"),
        ('{"format": "deepsets-model", "format_version": 1}', "config.json is not the one that was saved"),
    ],
)
def test_damaged_and_foreign_configs_are_errors(folder, text, match):
    (folder / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(folder, match)


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"class": None}, "lacks a valid 'class': found NoneType"),
        ({"format_version": 2}, "has format version 2 .* reads up to 1: upgrade"),
        ({"format_version": 99, "versions": [1]}, "has format version 99"),
        ({"class": "os.system"}, r"holds a 'os\.system'; known are"),
        ({"class": "OddOneOut"}, "is no setting|does not describe|do not fit"),
        ({"class": "MemberClassifier"}, "is no setting|does not describe|do not fit"),
        ({"params": {"telescopes": 3}}, "sets 'telescopes', which is no setting"),
        ({"params": {"checkpoint_dir": "/tmp/x"}}, "sets 'checkpoint_dir', which is no setting"),
        ({"params": {"dropout": float("nan")}}, "sets 'dropout' to nan, which is not a finite number"),
        ({"params": {"depth": 10**12}}, "do not fit its config.json: depth=1000000000000"),
        ({"params": {"epochs": -1}}, "epochs must be an integer of at least 1, found -1"),
        ({"params": {"batch_size": 0}}, "batch_size must be an integer of at least 1, found 0"),
        ({"params": {"model": "zzz"}}, "model must be .* found 'zzz'"),
        ({"params": {"device": "zzz"}}, "device must be .* found 'zzz'"),
        ({"params": {"n_estimators": 10**12}}, "do not fit its config.json: n_estimators=1000000000000"),
        ({"fitted": {"n_outputs_": "2"}}, "'n_outputs_' is not valid: found '2'"),
        ({"fitted": {"n_features_in_": 4}}, "do not fit"),
        ({"fitted": {"encoder": None}}, "lack a dict 'encoder'"),
        ({"fitted": {"heads": {}}}, "does not describe|not valid"),
        ({"fitted": {"classes_": None}}, "'classes_' is not a list"),
        ({"fitted": {"feature_names_in_": None}}, "'feature_names_in_' is not a list"),
        ({"fitted": {"context_names_in_": 5}}, "'context_names_in_' is not valid: found 5"),
        ({"fitted": {"classes_": {"dtype": "<U500000000", "entries": ["a", "b"]}}}, "'classes_' has the unknown type"),
        ({"fitted": {"classes_": {"dtype": "M8[s]", "entries": ["a", "b"]}}}, "'classes_' has the unknown type"),
        ({"fitted": {"classes_": {"dtype": "i8", "entries": ["a", "b"]}}}, "invalid literal"),
    ],
)
def test_changed_configs_are_errors(folder, entries, match):
    change(folder, **entries)
    refused(folder, match)


def test_a_setting_of_earlier_versions_is_read_if_it_has_the_value_that_is_fixed_now(tmp_path):
    near = NearestVectors({"oak": [1.0, 0.0], "elm": [0.9, 0.1], "lion": [0.0, 1.0]}, components=0).fit()
    folder = deepsets.save(near, tmp_path / "near")
    change(folder, params={"normalize": True})
    np.testing.assert_array_equal(deepsets.load(folder).score(["oak"]), near.score(["oak"]))
    change(folder, params={"normalize": False})
    refused(folder, "sets 'normalize', which is no setting")


def test_a_config_changed_by_hand_is_an_error(folder):
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"high"', '"tall"'))
    refused(folder, r"config\.json is not the one that was saved: the checksum differs")


def test_a_newer_format_is_reported_before_anything_else(folder):
    change(folder, format_version=7, versions={"deepsets": "9.9"}, params={"telescopes": 3})
    refused(folder, r"written by deepsets 9\.9")


@pytest.mark.parametrize(
    ("counts", "match"),
    [
        (torch.ones(()), "scores 1 elements of a vocabulary of 3|does not describe|do not describe"),
        (torch.ones(2), "scores 2 elements of a vocabulary of 3|do not describe"),
        (torch.ones(3, dtype=torch.complex64), "its tensor 'counts_' holds complex numbers"),
        (torch.ones(3, dtype=torch.bfloat16), "do not describe a Popularity"),
    ],
)
def test_tensors_that_do_not_fit_a_vocabulary_are_refused(tmp_path, counts, match):
    folder = deepsets.save(Popularity().fit([["a", "b"], ["b", "c"]]), tmp_path / "words")
    with_weights(folder, safetensors.torch.save({"counts_": counts}))
    refused(folder, match)


def test_weights_with_nan_are_refused(folder):
    tensors = safetensors.torch.load((folder / "model.safetensors").read_bytes())
    name = next(n for n in tensors if tensors[n].is_floating_point() and tensors[n].numel())
    tensors[name].view(-1)[0] = torch.nan
    with_weights(folder, safetensors.torch.save(tensors))
    refused(folder, f"its tensor '{name}' holds NaN")


# -------------------------------------------------------------------------------------------------------- identity


def test_the_identity_differs_for_other_weights_and_settings(folder):
    model = deepsets.load(folder)
    first = model_identity(model)
    assert model_identity(deepsets.load(folder)) == first
    assert model_identity(fitted("integers")) != first
    other = deepsets.load(folder)
    other.classes_ = other.classes_[::-1].copy()
    assert model_identity(other) != first


def test_the_identity_of_a_network_sees_its_options():
    parts = deepsets.nn.mlp(2, 4), deepsets.nn.mlp(5, 1)
    one, two = (deepsets.nn.DeepSet(*parts, pool=pool, append_size=True) for pool in ("sum", "mean"))
    assert model_identity(one) == model_identity(one)
    assert model_identity(one) != model_identity(two)


@pytest.mark.parametrize(
    ("estimator", "found"), [(SetRegressor(model="linear"), "allowed"), (SupportDistributionMachine(), "refused")]
)
def test_the_card_says_what_happens_to_missing_values(estimator, found, tmp_path):
    X = [np.array([[1.0, n], [n, 3.0]]) for n in range(20)]
    path = deepsets.save(estimator.fit(X, list(range(20))), tmp_path / "model")
    assert f"missing values (NaN) are {found}" in (path / "README.md").read_text()
    X[0][0, 0] = np.nan
    if found == "allowed":
        assert np.isfinite(estimator.predict(X)).all()
    else:
        with pytest.raises(ValueError, match="missing"):
            estimator.predict(X)
