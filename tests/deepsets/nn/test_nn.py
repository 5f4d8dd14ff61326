"""Properties of every layer: symmetry, empty sets, gradients, memory, conventions of torch."""

import pytest
import torch
from hypothesis import given, settings
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from deepsets import Sets, nn
from deepsets.testing import assert_equivariant
from tests.deepsets.nn.oracles import WIDTH, randomized, unweighted
from tests.strategies import ragged_batches

POOLS = ["sum", "mean", "sqrt", "std", "max", "min", "logsumexp", "gated", "sorted"]


LAYERS = {
    "full": lambda: nn.Equivariant(WIDTH, 5),
    "factored": lambda: nn.Equivariant(WIDTH, 5, pool="mean", form="factored"),
    "channel": lambda: nn.Equivariant(WIDTH, WIDTH, pool="sum", form="channel"),
    "wide": lambda: nn.Equivariant(WIDTH, 5, pool=["max", nn.QuantilePooling(), "seeds"]),
    "norm": lambda: nn.SetNorm(WIDTH),
    "standardize": lambda: nn.Standardize(),
    "dropout": lambda: nn.SetDropout(0.5),
    "block": lambda: nn.EquivariantBlock(WIDTH),
    "attention": lambda: nn.SetAttention(WIDTH, num_heads=2),
    "induced": lambda: nn.InducedSetAttention(WIDTH, num_inducing_points=3, num_heads=2),
    "stack": lambda: nn.SetSequential(
        nn.Equivariant(WIDTH, 8), torch.nn.Tanh(), nn.EquivariantBlock(8), torch.nn.Linear(8, 2)
    ),
}


FACTORIES = {
    "full": lambda **kind: nn.Equivariant(WIDTH, 5, **kind),
    "factored": lambda **kind: nn.Equivariant(WIDTH, 5, form="factored", **kind),
    "channel": lambda **kind: nn.Equivariant(WIDTH, WIDTH, form="channel", **kind),
    "named poolings": lambda **kind: nn.Equivariant(WIDTH, 5, pool=["max", "gated", "seeds", "sorted"], **kind),
    "norm": lambda **kind: nn.SetNorm(WIDTH, **kind),
    "block": lambda **kind: nn.EquivariantBlock(WIDTH, **kind),
    "attention": lambda **kind: nn.SetAttention(WIDTH, **kind),
    "induced": lambda **kind: nn.InducedSetAttention(WIDTH, 3, **kind),
    "stack": lambda **kind: nn.SetSequential(nn.Equivariant(WIDTH, 8, **kind), torch.nn.Linear(8, 2, **kind)),
    "model": lambda **kind: nn.DeepSet(nn.mlp(WIDTH, 8, **kind), nn.mlp(8, 1, **kind)),
}
every_layer = pytest.mark.parametrize("name", LAYERS)


@given(ragged_batches(WIDTH))
def test_no_layer_writes_into_its_input(sets):
    before = sets.values.clone()
    for make_one in LAYERS.values():
        make_one().to(sets.dtype)(unweighted(sets))
    assert torch.equal(sets.values, before)


@every_layer
@given(sets=ragged_batches(WIDTH))
@settings(max_examples=10)
def test_every_layer_is_equivariant(name, sets):
    if name == "wide":
        sets = unweighted(sets)
    assert_equivariant(
        randomized(LAYERS[name](), sets.dtype), sets, trials=1, tolerance=1e-3 if sets.dtype == torch.float32 else 1e-9
    )


@every_layer
def test_every_layer_accepts_empty_sets_and_empty_batches(name):
    layer = randomized(LAYERS[name]())
    x = torch.randn(3, WIDTH, dtype=torch.float64, requires_grad=True)
    out = layer(Sets(x, torch.tensor([0, 0, 2, 2, 3, 3])))
    assert out.sizes.tolist() == [0, 2, 0, 1, 0]
    out.values.square().sum().backward()
    assert bool(x.grad.isfinite().all())
    none = x.detach()[:0]
    assert layer(Sets(none, torch.tensor([0, 0, 0]))).values.shape == (0, out.width)
    assert len(layer(Sets(none, torch.tensor([0])))) == 0


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)
def test_parameters_are_made_on_the_device_and_in_the_dtype_asked_for(make):
    meta = make(device="meta", dtype=torch.float64)
    assert {(p.device.type, p.dtype) for p in meta.parameters()} == {("meta", torch.float64)}
    assert {(p.device.type, p.dtype) for p in make().parameters()} == {("cpu", torch.float32)}


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)
def test_parameters_can_be_initialised_again(make):
    torch.manual_seed(3)
    module = make()
    first = [p.detach().clone() for p in module.parameters()]
    randomized(module)
    torch.manual_seed(3)
    module.float().reset_parameters()
    for again, before in zip(module.parameters(), first, strict=True):
        assert torch.equal(again, before)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (nn.Equivariant(3, 5, "mean"), "in_features=3, out_features=5, form='full', activation=None"),
        (nn.EquivariantBlock(4), "features=4"),
        (nn.SetNorm(4), "features=4, eps=1e-05"),
        (nn.Standardize(), "eps=1e-06"),
        (nn.SetDropout(0.2), "p=0.2"),
        (nn.SetAttention(4, 2), "features=4, num_heads=2"),
        (nn.InducedSetAttention(4, 3, 2), "features=4, num_heads=2, num_inducing_points=3"),
        (nn.GatedAttentionPooling(4, 7), "features=4, hidden=7"),
        (nn.SeedAttentionPooling(4, 3, 2), "features=4, num_seeds=3, num_heads=2"),
        (nn.SortPooling(4, 5), "features=4, knots=5"),
        (nn.QuantilePooling([0.5]), "q=(0.5,)"),
        (nn.DeepSet(nn.mlp(1, 1), nn.mlp(1, 1)), "condition=None, append_size=False"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, torch.nn.Module) else "",
)
def test_the_settings_are_shown(module, text):
    assert module.extra_repr() == text


@every_layer
def test_gradients_of_every_layer_are_those_of_finite_differences(name):
    layer = randomized(LAYERS[name]())
    torch.manual_seed(2)
    x = torch.randn(6, WIDTH, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(Sets(x, torch.tensor([0, 3, 3, 4, 6]))).values, x)


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation gives back."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        self.numel = max([self.numel, *(t.numel() for t in tree_leaves(out) if isinstance(t, torch.Tensor))])
        return out


def largest(module: torch.nn.Module, sizes: list[int]) -> int:
    sets = Sets.from_list([torch.randn(n, WIDTH) for n in sizes])
    with Largest() as seen:
        module(sets)
    return seen.numel


MODULES = {
    **LAYERS,
    **{f"pool {p}": (lambda p=p: nn.pooling(p, WIDTH)) for p in [*POOLS, "seeds"]},
    "pool quantile": lambda: nn.QuantilePooling(),
    "deepset": lambda: nn.DeepSet(nn.mlp(WIDTH, 8, 8), nn.mlp(8, 1)),
}


@pytest.mark.parametrize("name", MODULES)
def test_memory_follows_the_number_of_elements_and_not_the_largest_set(name):
    module = MODULES[name]()
    even, skewed = largest(module, [10] * 440), largest(module, [4000] + [1] * 400)
    assert skewed <= 2 * even
    assert skewed <= 4400 * 64  # 64 numbers an element; padding would take 401 · 4000 rows, 364 times as many
