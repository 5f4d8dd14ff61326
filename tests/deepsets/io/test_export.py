"""The models give the same answers under torch.compile, torch.export, ONNX and autocast, for sets of other sizes."""

import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.testing import assert_close

import deepsets
from deepsets import Sets, nn

EXAMPLE = [4, 2, 0, 5, 3]
MANY = [1, 7, 0, 2, 0, 3, 6]
LAST_EMPTY = [9, 2, 0]
CORNERS = [[3], [1], [0], [0, 0], [1, 0], [40, 1]]

EVERY_POOL = ("sum", "mean", "sqrt", "max", "min", "std", "logsumexp")


def deepset(pool, pooled: int = 8, **options) -> nn.DeepSet:
    z = 2 if options.get("condition") else 0
    rho = nn.mlp(pooled + bool(options.get("append_size")) + z, 16, 2)
    return nn.DeepSet(nn.mlp(3 + z, 16, 8), rho, pool, **options)


def stack(pool: str) -> nn.SetSequential:
    """All three forms, tanh, the norm and a block that is not the identity."""
    block = nn.EquivariantBlock(8)
    torch.nn.init.normal_(block.out.weight, std=0.3)
    return nn.SetSequential(
        nn.Equivariant(3, 8, pool),
        torch.nn.Tanh(),
        nn.Equivariant(8, 8, pool, form="factored", activation="tanh"),
        nn.SetNorm(8),
        nn.Equivariant(8, 8, pool, form="channel"),
        torch.nn.Tanh(),
        block,
    )


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "sum": lambda: deepset("sum"),
    "mean": lambda: deepset("mean"),
    "max": lambda: deepset("max"),
    "max and mean": lambda: deepset(["max", "mean"], 16),
    "std": lambda: deepset("std"),
    "logsumexp": lambda: deepset("logsumexp"),
    "gated": lambda: deepset(nn.GatedAttentionPooling(8)),
    "seeds": lambda: deepset(nn.SeedAttentionPooling(8, num_seeds=2, num_heads=2), 16),
    "size": lambda: deepset("mean", append_size=True),
    "z": lambda: deepset("sum", condition="both"),
    "all poolings": lambda: deepset(
        [*EVERY_POOL, nn.GatedAttentionPooling(8), nn.SeedAttentionPooling(8, num_seeds=2, num_heads=2)],
        80,
        append_size=True,
    ),
    "set layers in phi": lambda: nn.DeepSet(stack("mean"), nn.mlp(8, 2), "max"),
    "stack sum": lambda: stack("sum"),
    "stack mean": lambda: stack("mean"),
    "stack max": lambda: stack("max"),
}
CASES = [(name, "plain") for name in MODELS if name != "all poolings"]
CASES += [("all poolings", "weights"), ("all poolings", "index"), ("stack max", "index")]
# Tracing takes seconds: every pooling is traced once, side by side, and those that are named alone are left out.
ALONE = ("sum", "mean", "max", "std", "logsumexp", "gated", "seeds")
TRACED = [("all poolings", "plain"), *(case for case in CASES if case[0] not in ALONE)]


def make(name: str) -> torch.nn.Module:
    torch.manual_seed(1)
    return MODELS[name]()


def batch(sizes: list[int], kind: str = "plain", seed: int = 0) -> Sets:
    """Plain sets; or with weights, some of them 0; or with elements that stand in several sets."""
    draw = torch.Generator().manual_seed(seed + sum(sizes) + len(sizes))
    total = sum(sizes)
    offsets = torch.tensor([0, *np.cumsum(sizes)])
    if kind == "index":
        return Sets(torch.randn(10, 3, generator=draw), offsets, torch.randint(0, 10, (total,), generator=draw))
    weights = torch.randint(0, 4, (total,), generator=draw) / 2 if kind == "weights" else None
    return Sets(torch.randn(total, 3, generator=draw), offsets, None, weights)


def arguments(model: torch.nn.Module, sizes: list[int], kind: str = "plain") -> tuple:
    sets = batch(sizes, kind)
    if getattr(model, "condition", None) is None:
        return (sets,)
    return sets, torch.randn(len(sizes), 2, generator=torch.Generator().manual_seed(len(sizes)))


def values(answer: Sets | Tensor) -> Tensor:
    return answer.materialize().values if isinstance(answer, Sets) else answer


def answer_and_gradients(model: Callable, parameters: list[Tensor], inputs: tuple) -> list[Tensor]:
    out = values(model(*inputs))
    slopes = torch.autograd.grad(out.float().square().sum(), parameters, materialize_grads=True)
    return [out.detach(), *slopes]


@pytest.fixture(autouse=True)
def _forget_compiled_code():
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()


def graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


# ------------------------------------------------------------------------------------------------------ compile


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [case for case in TRACED if case[0] != "set layers in phi"])  # inductor's
def test_one_compiled_graph_answers_and_learns_like_the_model_for_any_sizes(name, kind):
    model = make(name)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for sizes in (EXAMPLE, MANY, LAST_EMPTY):
        inputs = arguments(model, sizes, kind)
        wanted = answer_and_gradients(model, list(model.parameters()), inputs)
        assert_close(answer_and_gradients(compiled, list(model.parameters()), inputs), wanted, rtol=1e-4, atol=1e-5)
    assert graphs() == 1


@pytest.mark.slow
def test_compiled_models_know_single_sets_and_empty_sets_with_few_recompilations():
    model = make("max and mean")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for sizes in (EXAMPLE, *CORNERS, MANY):
        inputs = arguments(model, sizes)
        wanted = answer_and_gradients(model, list(model.parameters()), inputs)
        assert_close(answer_and_gradients(compiled, list(model.parameters()), inputs), wanted, rtol=1e-4, atol=1e-5)
    assert graphs() <= 7  # torch makes graphs of their own for 0 and 1 sets or elements, none for other sizes


# Importing inductor defines a class with the old torch.jit; nothing of ours uses it.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", ["max and mean", "set layers in phi"])
@pytest.mark.slow
def test_inductor_answers_and_learns_like_the_model(name):
    model = make(name)
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for sizes in (EXAMPLE, MANY):
        inputs = arguments(model, sizes)
        wanted = answer_and_gradients(model, list(model.parameters()), inputs)
        assert_close(answer_and_gradients(compiled, list(model.parameters()), inputs), wanted, rtol=1e-4, atol=1e-5)
    assert graphs() == 1


def test_set_attention_is_refused_as_one_graph_because_its_buckets_depend_on_the_data():
    compiled = torch.compile(nn.SetAttention(4, num_heads=2), fullgraph=True, dynamic=True, backend="eager")
    with pytest.raises(GuardOnDataDependentSymNode, match=r"data-dependent[\s\S]*in _buckets"):
        compiled(Sets.from_list([torch.randn(5, 4), torch.randn(2, 4)]))


def test_set_attention_runs_compiled_in_pieces():
    model = nn.SetAttention(4, num_heads=2)
    sets = Sets.from_list([torch.randn(5, 4), torch.randn(2, 4)])
    with torch.no_grad():  # with gradients dynamo looks at .grad of its own tensors, which torch warns of
        assert_close(torch.compile(model, backend="eager")(sets).values, model(sets).values)


# ------------------------------------------------------------------------------------------------------- export


@pytest.mark.parametrize(("name", "kind"), TRACED)
def test_an_exported_program_answers_like_the_model_for_any_sizes(name, kind):
    model = make(name).eval()
    program = deepsets.export_program(model, *arguments(model, EXAMPLE, kind)).module()
    for sizes in (EXAMPLE, MANY, LAST_EMPTY, *CORNERS):
        inputs = arguments(model, sizes, kind)
        assert_close(values(program(*inputs)), values(model(*inputs)))


def test_sorting_poolings_are_exported_too():
    model = deepset([nn.QuantilePooling([0.5]), nn.SortPooling(8)], 16)
    program = deepsets.export_program(model, batch(EXAMPLE)).module()
    for sizes in (MANY, LAST_EMPTY, *CORNERS):
        assert_close(program(batch(sizes)), model(batch(sizes)))


def test_torch_export_itself_takes_sets():
    model = make("mean").eval()
    dynamic = {0: torch.export.Dim.DYNAMIC}
    program = torch.export.export(model, (batch(EXAMPLE),), dynamic_shapes=([dynamic, dynamic, None, None],)).module()
    assert_close(program(batch(MANY)), model(batch(MANY)))


def test_a_saved_program_gives_sets_back(tmp_path):
    model = make("stack sum").eval()
    torch.export.save(deepsets.export_program(model, batch(EXAMPLE)), tmp_path / "model.pt2")
    answer = torch.export.load(tmp_path / "model.pt2").module()(batch(MANY))
    assert isinstance(answer, Sets)
    assert answer.offsets.tolist() == batch(MANY).offsets.tolist()
    assert_close(answer.values, model(batch(MANY)).values)


@pytest.mark.parametrize(
    "layer", [nn.SetAttention(4, num_heads=2), nn.InducedSetAttention(4, num_inducing_points=2, num_heads=2)]
)
def test_attention_among_members_says_why_it_cannot_be_exported(layer):
    with pytest.raises(ValueError, match="attention among members cannot be exported: it groups the sets by size"):
        deepsets.export_program(layer, Sets.from_list([torch.randn(5, 4), torch.randn(2, 4)]))


def test_the_sizes_of_the_example_may_be_the_smallest_ones():
    model = make("max and mean").eval()
    program = deepsets.export_program(model, batch([2, 2])).module()
    assert_close(program(batch(MANY)), model(batch(MANY)))


# --------------------------------------------------------------------------------------------------------- ONNX


def onnx_session(model: torch.nn.Module, inputs: tuple, folder):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    sets, *z = inputs
    path = deepsets.export_onnx(model, sets, folder / "model.onnx", *z)
    assert [entry.name for entry in folder.iterdir()] == ["model.onnx"]  # weights inside, no leftovers
    return onnxruntime.InferenceSession(path)


def onnx_run(session, sets: Sets, *z: Tensor) -> Tensor:
    parts = {"values": sets.values, "offsets": sets.offsets, "element_ids": sets.element_ids, "weights": sets.weights}
    parts |= {"z": z[0]} if z else {}
    feed = {name: part.numpy() for name, part in parts.items() if part is not None}
    assert [entry.name for entry in session.get_inputs()] == list(feed)
    return torch.from_numpy(session.run(["output"], feed)[0])


ONNX_CASES = [(name, "plain") for name in ("all poolings", "z", "stack sum", "stack mean", "stack max")]
ONNX_CASES += [("all poolings", "weights"), ("all poolings", "index")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), ONNX_CASES)
def test_onnxruntime_answers_like_the_model_for_any_sizes(name, kind, tmp_path):
    model = make(name).eval()
    session = onnx_session(model, arguments(model, EXAMPLE, kind), tmp_path)
    for sizes in (EXAMPLE, MANY, LAST_EMPTY, *CORNERS):
        inputs = arguments(model, sizes, kind)
        wanted = values(model(*inputs)).detach()
        assert_close(onnx_run(session, *inputs), wanted, rtol=1e-5, atol=1e-5)


def test_a_failed_export_leaves_the_old_file_alone(tmp_path):
    pytest.importorskip("onnxscript")
    path = tmp_path / "model.onnx"
    path.write_text("the old one")
    with pytest.raises(ValueError, match="attention among members cannot be exported: it groups the sets by size"):
        deepsets.export_onnx(nn.SetAttention(4, num_heads=2), Sets.from_list([torch.randn(5, 4)]), path)
    assert path.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"writing ONNX needs onnxscript: pip install 'deepsets\[onnx\]'"):
        deepsets.export_onnx(make("sum"), batch(EXAMPLE), tmp_path / "model.onnx")


# ----------------------------------------------------------------------------------------------------- autocast


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_bfloat16_autocast_stays_near_float32_and_gives_finite_gradients(name, kind):
    model = make(name)
    for sizes in (EXAMPLE, [300, 0, 200]):
        inputs = arguments(model, sizes, kind)
        exact = values(model(*inputs)).detach()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out, *slopes = answer_and_gradients(model, list(model.parameters()), inputs)
        # bfloat16 keeps 8 bits: 0.4 % a rounding; a handful of layers add up to less than 5 % of the largest answer
        assert float((out.float() - exact).abs().max()) <= 0.05 * float(exact.abs().max())
        assert all(bool(slope.isfinite().all()) for slope in slopes)
        assert all(slope.dtype == torch.float32 for slope in slopes)


def test_weights_of_large_sets_add_up_in_bfloat16():
    sets = Sets(torch.ones(3000, 2), torch.tensor([0, 3000]), None, torch.ones(3000)).to(dtype=torch.bfloat16)
    assert sets.counts.dtype == torch.bfloat16
    assert_close(sets.counts.float(), torch.tensor([3000.0]), rtol=0.004, atol=0)
    assert_close(nn.MeanPooling()(sets).float(), torch.ones(1, 2), rtol=0.01, atol=0)


# --------------------------------------------------------------------------------------------------- state dicts


@pytest.mark.parametrize("name", MODELS)
def test_a_state_dict_loads_strictly_into_a_new_model(name, tmp_path):
    model = make(name)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    torch.manual_seed(2)
    other = MODELS[name]()
    inputs = arguments(model, EXAMPLE)
    assert not torch.equal(values(other(*inputs)), values(model(*inputs)))
    other.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True), strict=True)
    assert torch.equal(values(other(*inputs)), values(model(*inputs)))
