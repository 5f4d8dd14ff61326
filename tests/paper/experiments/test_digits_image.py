"""Sum of digits given as images: the training, the bank of deformations, both test protocols."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from deepsets.nn import DeepSet
from paper import Trial
from paper.datasets.digits import deform, small_images
from paper.experiments import digits_image
from paper.experiments.digits_networks import Reader, sum_model


@pytest.mark.parametrize("copies", [0, 2])
def test_a_training_that_was_stopped_ends_with_the_same_weights(tmp_path, monkeypatch, copies):
    images, digits = small_images("train")
    chosen = SimpleNamespace(
        epochs=2, rate=1e-3, pool=128, sets=32, amount=(0.5, 1.0) if copies else 1.0, copies=copies
    )

    def build():
        torch.manual_seed(0)
        return DeepSet(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh()), nn.Linear(8, 1), pool="sum")

    def loss(model, batch):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return (model(batch.sets)[:, 0] - batch.y).abs().sum(), len(batch.y)

    def fit(model, name):
        digits_image._train(model, loss, images, digits, Trial(False, 0, tmp_path / name), chosen, seed=5)

    whole, stopped = build(), build()
    left = 1000
    before = torch.get_rng_state()
    fit(whole, "a")
    assert torch.get_rng_state().equal(before)
    left = 13
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("deepsets.train.run.Run.is_due", lambda self, seconds: True)
        fit(stopped, "b")
    left = 9  # 22 steps in all
    again = build()
    fit(again, "b")
    for a, b in zip(again.parameters(), whole.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_sums_alone_teach_to_read_digits(tmp_path):
    images, digits = small_images("train")
    torch.manual_seed(0)
    model = sum_model(Reader(8), most=90)
    chosen = SimpleNamespace(epochs=6, rate=4e-3, amount=0.3)
    digits_image._train(model, digits_image._surprise, images, digits, Trial(False, 0, tmp_path), chosen, seed=0)
    test, truth = small_images("test")
    with torch.no_grad():
        read = model.phi[0].eval()(test / 255).argmax(1)
    assert (read == truth).float().mean() > 0.85


def test_the_bank_holds_other_deformations_of_every_image():
    images, _ = small_images("test")
    bank = digits_image._bank(images, [0.4, 0.4, 0.4], seed=1)
    assert bank.shape == (3, *images.shape) and bank.dtype == torch.uint8
    assert not torch.equal(bank[0], bank[1]) and torch.equal(bank, digits_image._bank(images, [0.4, 0.4, 0.4], seed=1))
    first = deform(images[:359] / 255, 0.4, torch.Generator().manual_seed(500_001))
    assert (bank[0] - (255 * first)).abs().max() < 1
    assert (digits_image._bank(images, [0.0], seed=1)[0].float() - images.float()).abs().max() <= 1


def test_the_full_form_is_tested_on_test_images_and_on_deformed_training_images(tmp_path, monkeypatch):
    monkeypatch.setattr(digits_image, "mnist", small_images)
    monkeypatch.setattr(digits_image, "SIZES", (1, 5))
    trial = Trial(True, 0, tmp_path, given={"epochs": 1, "pool": 128, "sets": 32, "copies": 1, "optimizer": None})
    found = digits_image.EXPERIMENT.methods["Deep Sets"](trial, "all").measures
    assert [row.data for row in found] == ["M=1", "M=5", "deformed M=1", "deformed M=5"]
    assert trial.settings["amount"] == (0.3, 1.8) and trial.settings["copies"] == 1


def test_the_published_encoder_has_300_100_and_30_tanh_units(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(digits_image, "_train", lambda model, *rest: seen.append(model.phi))
    digits_image.EXPERIMENT.methods["Deep Sets"](Trial(False, 0, tmp_path), "all")
    x = torch.rand(4, 8, 8)
    weights = list(seen[0].parameters())
    assert [tuple(w.shape) for w in weights[::2]] == [(300, 64), (100, 300), (30, 100)]
    slow = torch.zeros(4, 8, 8)
    total = sum(math.exp(-((3.5 * j) ** 2) / 2) for j in range(-4, 4))  # a pixel here is 3.5 of 28
    for a, b, c, d in itertools.product(range(8), repeat=4):
        slow[:, a, b] += math.exp(-(3.5**2) * ((a - c) ** 2 + (b - d) ** 2) / 2) / total**2 * x[:, c, d]
    slow = (slow.flatten(1) - 0.13) / 0.25  # about mean 0, deviation 1
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        slow = (slow @ weight.T + bias).tanh()
    torch.testing.assert_close(seen[0](x), slow)
