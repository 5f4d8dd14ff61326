"""Models on padded arrays: the padding is never seen."""

import pytest
import torch
from hypothesis import given

from deepsets import Sets, nn
from tests.strategies import assert_near, ragged_batches

WIDTH = 3


def model() -> nn.PaddedInput:
    torch.manual_seed(0)
    return nn.PaddedInput(nn.DeepSet(nn.mlp(WIDTH, 8, 8), nn.mlp(8, 2), pool="mean"))


@given(ragged_batches(WIDTH, weights=False, dtypes=[torch.float32]))
def test_the_output_is_that_of_each_set_without_padding(sets):
    net = model()
    expected = torch.stack([net.model.rho(net.model.phi(x).mean(0) if len(x) else torch.zeros(8)) for x in sets])
    padded, mask = sets.to_padded(fill=1e6)
    assert_near(net(padded, mask), expected, 10)
    assert_near(net(padded, mask.float()), expected, 10)
    assert_near(net(sets.to_padded(torch.nan)[0]), expected, 10)


@given(ragged_batches(WIDTH, weights=False, dtypes=[torch.float64]))
def test_set_layers_return_padded_members(sets):
    layer = nn.Equivariant(WIDTH, 5).double()
    padded, mask = sets.to_padded(torch.nan)
    out = nn.PaddedInput(layer)(padded)
    assert out.shape == (*mask.shape, 5)
    assert not out[~mask].any()
    assert torch.equal(out[mask], layer(sets).values)


def test_gradients_reach_the_elements_and_not_the_padding():
    x = torch.randn(2, 4, WIDTH, requires_grad=True)
    mask = torch.tensor([[True, True, False, False], [True, True, True, False]])
    model()(x, mask).sum().backward()
    assert bool((x.grad[mask] != 0).any(-1).all())
    assert not x.grad[~mask].any()


def test_z_is_passed_on():
    net = nn.PaddedInput(nn.DeepSet(nn.mlp(WIDTH, 8), nn.mlp(10, 1), condition="rho"))
    x, z = torch.randn(2, 4, WIDTH), torch.randn(2, 2)
    assert torch.equal(net(x, z=z), net.model(Sets.from_list(list(x)), z))


def test_a_partly_missing_element_is_an_error():
    x = torch.zeros(1, 2, WIDTH)
    x[0, 1, 0] = torch.nan
    with pytest.raises(ValueError, match=r"values must be finite: set 0, element 1 holds \[nan, 0.0, 0.0\]"):
        model()(x)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # sbi and what it imports warn
def test_a_deep_set_is_the_embedding_network_of_sbi(tmp_path, monkeypatch):
    inference = pytest.importorskip("sbi.inference")
    from sbi.neural_nets import posterior_nn
    from torch.distributions import MultivariateNormal

    monkeypatch.chdir(tmp_path)  # sbi writes its logs there
    torch.manual_seed(0)
    theta = torch.randn(300, 1)
    x = theta[:, None] + 0.3 * torch.randn(300, 8, 1)
    x[torch.arange(8) >= torch.randint(2, 9, (300, 1))] = torch.nan  # sets of 2 to 8 elements
    net = nn.PaddedInput(nn.DeepSet(nn.mlp(1, 16, 16), nn.mlp(16, 4), pool="mean"))
    trainer = inference.NPE(
        prior=MultivariateNormal(torch.zeros(1), torch.eye(1)),
        density_estimator=posterior_nn("mdn", embedding_net=net, z_score_x="none"),
        show_progress_bars=False,
    )
    trainer.append_simulations(theta, x, exclude_invalid_x=False)
    posterior = trainer.build_posterior(trainer.train(max_num_epochs=30, training_batch_size=50))
    samples = posterior.sample((200,), x=torch.ones(1, 8, 1), show_progress_bars=False)
    assert 0.6 < float(samples.mean()) < 1.3  # exactly: 0.99
