"""The compiled kernels against arithmetic written out: eager, compiled, exported, transformed, threaded."""

import ctypes
import os
import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import deepsets
from deepsets import Sets, nn
from deepsets.nn import kernels, kernels_torch, parallel
from tests.strategies import DTYPES, assert_near, ragged_batches

kernels_numba = pytest.importorskip("deepsets.nn.kernels_numba", reason="needs numba")
WIDTH = 4


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    """Run compiled kernels on the smallest batches too."""
    monkeypatch.setattr(kernels, "SMALL", 0)


def large(
    low: int = 1, high: int = 40, total: int = 20_000, width: int = 32, dtype: torch.dtype = torch.float32
) -> Sets:
    """A batch above the size from which threads are used."""
    sizes = torch.randint(low, high, (2 * total // (low + high),))
    sizes[3] = 0
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    return Sets(torch.randn(int(offsets[-1]), width, dtype=dtype), offsets)


def members(sets: Sets) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The rows and weights of each set, in double precision."""
    flat = sets.materialize()
    weights = torch.ones(flat.total) if flat.weights is None else flat.weights
    bounds = flat.offsets.tolist()
    return [(flat.values[a:b].double(), weights[a:b].double()) for a, b in pairwise(bounds)]


# --------------------------------------------------------------------------------------------------------- values


@given(sets=ragged_batches(WIDTH))
def test_sums_equal_a_plain_loop_bit_by_bit(sets):
    flat = sets.materialize()
    rows = flat.values if flat.weights is None else flat.values * flat.weights.to(flat.dtype)[:, None]
    bounds = flat.offsets.tolist()
    slow = torch.zeros(len(sets), WIDTH, dtype=sets.dtype)
    for b in range(len(sets)):
        for i in range(bounds[b], bounds[b + 1]):
            slow[b] = slow[b] + rows[i]
    assert torch.equal(kernels.segment_sum(sets.values, sets, sets.weights), slow)


@given(sets=ragged_batches(WIDTH))
def test_means_equal_a_plain_loop(sets):
    found = kernels.segment_mean(sets.values, sets, sets.weights)
    for b, (x, w) in enumerate(members(sets)):
        total = float(w.sum())
        assert_near(found[b], (x * w[:, None]).sum(0) / total if total > 0 else torch.zeros(WIDTH), 5)


@pytest.mark.parametrize("weights", [None, torch.tensor([1.0, 2.0, 0.5, 3.0, 0.0])])
def test_the_mean_of_shared_elements_has_the_gradient_of_finite_differences_twice(weights):
    x = torch.randn(3, WIDTH, dtype=torch.float64, requires_grad=True)
    weights = None if weights is None else weights.double()
    sets = Sets.unchecked(x, torch.tensor([0, 2, 2, 4, 5]), torch.tensor([0, 1, 1, 2, 0]), weights)
    mean = lambda x: kernels.segment_mean(x, sets, sets.weights).square()  # noqa: E731
    assert torch.autograd.gradcheck(mean, (x,)) and torch.autograd.gradgradcheck(mean, (x,))


@given(sets=ragged_batches(WIDTH))
def test_moments_and_exponentials_equal_a_plain_loop(sets):
    flat = sets.materialize()
    mean, squares = kernels.segment_moments(flat.values, flat, flat.weights)
    peak, total = kernels.segment_exp_sum(flat.values, flat, flat.weights)
    for b, (x, w) in enumerate(members(sets)):
        if float(w.sum()) == 0:
            assert all(bool((found[b] == 0).all()) for found in (mean, squares, peak, total))
            continue
        average = (x * w[:, None]).sum(0) / w.sum()
        assert_near(mean[b], average, 5)
        scale = 5 * max(1.0, float(x.abs().max()) ** 2)
        assert_near(squares[b], ((x - average) ** 2 * w[:, None]).sum(0), scale)
        assert torch.equal(peak[b].double(), x[w > 0].amax(0))
        assert_near(total[b], ((x - x[w > 0].amax(0)).clamp(max=0).exp() * w[:, None]).sum(0), 5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_weighted_member_alone_has_no_deviation_and_no_gradient(dtype):
    x = torch.randn(50, WIDTH, dtype=dtype, requires_grad=True)
    sets = Sets.unchecked(x, torch.arange(51), None, torch.rand(50, dtype=dtype) + 0.5)
    out = nn.StdPooling()(sets)
    (slope,) = torch.autograd.grad(out.sum(), x)
    assert float(out.detach().max()) < 100 * torch.finfo(dtype).eps
    assert float(slope.abs().max()) < 1e-3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kinds"), [(1, 1), (6, 3)])
def test_attention_sums_equal_a_plain_loop(dtype, heads, kinds):
    offsets = torch.tensor([0, 3, 3, 4, 9])
    scores, values = 5 * torch.randn(9, heads, dtype=dtype), torch.randn(9, kinds, 5, dtype=dtype)
    weights = torch.tensor([1, 0, 2, 1, 1, 0.5, 1, 3, 1], dtype=dtype)
    peak, total, mean = kernels.segment_softmax(scores, values, Sets(values, offsets), weights)
    assert bool((total[1] == 0).all() and (mean[1] == 0).all() and (peak[1] == 0).all())
    for b in (0, 2, 3):
        rows = slice(int(offsets[b]), int(offsets[b + 1]))
        for h in range(heads):
            share = weights[rows].double() * (scores[rows, h].double() - peak[b, h].double()).exp()
            assert_near(total[b, h], share.sum())
            assert_near(mean[b, h], (share[:, None] * values[rows, h % kinds].double()).sum(0) / share.sum())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [None, "tanh", "relu", "elu"])
def test_the_equivariant_update_is_an_addition_and_an_activation(dtype, activation):
    apply = {None: lambda x: x, "tanh": torch.tanh, "relu": torch.relu, "elu": torch.nn.functional.elu}[activation]
    x = (
        torch.cat([torch.linspace(-100, 100, 401), torch.tensor([0.0, -0.0, 1e-6, -1e-6])])
        .to(dtype)[:, None]
        .repeat(1, 3)
    )
    offsets = torch.tensor([0, 200, 200, 405])
    context = torch.tensor([[0.0], [1.0], [0.25]]).to(dtype).repeat(1, 3).requires_grad_()
    leaf = x.clone().requires_grad_()
    found = kernels.add_broadcast_(leaf * 1, context, Sets(x, offsets), activation)
    slow = apply(x + torch.repeat_interleave(context.detach(), offsets.diff(), dim=0))
    assert_near(found.detach(), slow, 5)
    grad = torch.randn_like(found)
    got = torch.autograd.grad(found, (leaf, context), grad)
    y = (x + torch.repeat_interleave(context.detach(), offsets.diff(), dim=0)).double().requires_grad_()
    (wanted,) = torch.autograd.grad(apply(y), y, grad.double())
    assert_near(got[0], wanted, 5)
    assert_near(got[1], torch.stack([wanted[:200].sum(0), wanted[:0].sum(0), wanted[200:].sum(0)]), 50)


def test_nan_reaches_the_maximum_and_the_minimum():
    x = torch.tensor([[1.0], [torch.nan], [3.0], [2.0], [5.0]])
    sets = Sets.unchecked(x, torch.tensor([0, 3, 5]))
    for kernel, best in ((kernels.segment_max, 5.0), (kernels.segment_min, 2.0)):
        for values in (x, x.requires_grad_(), x.repeat(1, 20)):
            found = kernel(values, sets)
            assert bool(found[0].isnan().all()) and bool((found[1] == best).all())


@pytest.mark.parametrize("rows", [40, 5000])
@pytest.mark.parametrize("place", [0, 17, 39])
def test_without_a_gradient_extrema_are_the_same(rows, place):
    """Sets that a second pass finds in the cache and longer ones; infinities of both signs, whose sum is nan."""
    x = torch.randint(-9, 9, (rows, 33)).float()
    x[place, :5], x[place, 5:9], x[place, 9:12] = torch.inf, -torch.inf, torch.nan
    x[0, 3:7] = -torch.inf
    sets = Sets.unchecked(x, torch.tensor([0, 20, 20, rows]))
    for kernel, slow in ((kernels.segment_max, torch.amax), (kernels.segment_min, torch.amin)):
        wanted = torch.stack([slow(x[:20], 0), torch.zeros(33), slow(x[20:], 0)])
        for values in (x.detach(), x.clone().requires_grad_()):
            torch.testing.assert_close(kernel(values, sets).detach(), wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_added_in_single_precision(dtype):
    x = torch.ones(3000, 2, dtype=dtype)
    sets = Sets(x, torch.tensor([0, 1000, 3000]))
    assert kernels.segment_sum(x, sets).tolist() == [[1000.0] * 2, [2000.0] * 2]
    assert kernels_torch.segment_sum(x, sets).tolist() == [[1000.0] * 2, [2000.0] * 2]


# ----------------------------------------------------------------------------------------------- gradients


@given(sets=ragged_batches(WIDTH, dtypes=[torch.float64]), data=st.data())
def test_all_gradients_equal_those_of_the_plain_form(sets, data):
    flat = sets.materialize()
    w = flat.weights
    counts = flat.counts
    pairs = [
        (lambda x: kernels.segment_moments(x, flat, w), lambda x: kernels_torch.segment_moments(x, flat, w)),
        (lambda x: kernels.segment_exp_sum(x, flat, w)[1], lambda x: kernels_torch.segment_exp_sum(x, flat, w)[1]),
        (
            lambda x: kernels.segment_logsumexp(x, flat, w),
            lambda x: kernels_torch.log_of_sum(*kernels_torch.segment_exp_sum(x, flat, w)),
        ),
        (
            lambda x: kernels.segment_std(x, flat, w),
            lambda x: kernels_torch.deviation(kernels_torch.segment_moments(x, flat, w)[1], counts),
        ),
        (lambda x: kernels.segment_max(x, flat), lambda x: kernels_torch.segment_extremum(x, flat, "amax")),
        (lambda x: kernels.segment_min(x, flat), lambda x: kernels_torch.segment_extremum(x, flat, "amin")),
        (lambda x: kernels.segment_sum(x, flat, w), lambda x: kernels_torch.segment_sum(x, flat, w)),
        (
            lambda x: kernels.segment_mean(x, flat, w),
            lambda x: kernels_torch.segment_sum(x, flat, w) / torch.where(counts > 0, counts, 1)[:, None],
        ),
    ]
    fast, slow = data.draw(st.sampled_from(pairs))
    x = flat.values.clone().requires_grad_()
    found, wanted = (f(x) if isinstance(f(x), tuple) else (f(x),) for f in (fast, slow))
    grads = [torch.randn_like(part) for part in wanted]
    scale = 5 * max(1.0, float(x.detach().abs().max()) if flat.total else 0)
    assert_near(torch.autograd.grad(found, x, grads)[0], torch.autograd.grad(wanted, x, grads)[0], scale)


def test_attention_sums_have_the_gradients_of_finite_differences_twice():
    offsets = torch.tensor([0, 3, 3, 4, 6])
    scores = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    values = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([1.0, 0.5, 0.0, 2.0, 0.3, 3.0], dtype=torch.float64)

    def attention(s, v):
        peak, total, mean = kernels.segment_softmax(s, v, Sets.unchecked(v, offsets), weights)
        return mean, peak + torch.where(total > 0, total, 1).log()  # the total alone is relative to the peak

    assert torch.autograd.gradcheck(attention, (scores, values))
    assert torch.autograd.gradgradcheck(attention, (scores, values))


def test_an_extremum_inside_a_layer_adds_to_the_gradient_of_the_matrix_product():
    x = torch.tensor([[3.0, 1.0], [3.0, 2.0], [0.0, 5.0]], requires_grad=True)
    weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    same, best = kernels.extremum_with_values(x * 1, Sets(x, torch.tensor([0, 2, 3])), 1)
    ((same @ weight).sum() + (best * torch.tensor([[10.0, 20.0], [30.0, 40.0]])).sum()).backward()
    assert x.grad.tolist() == [[3 + 5, 7], [3 + 5, 7 + 20], [3 + 30, 7 + 40]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 7, 8, 15, 16, 17, 64, 100, 129, 208])
def test_every_width_equals_a_loop_over_sets(dtype, width):
    """Rows narrower than a vector, of whole vectors, and with a rest."""
    x = torch.randint(-3, 4, (60, width)).to(dtype)  # small integers: sums are exact, and many members tie
    offsets = torch.tensor([0, 1, 1, 12, 40, 60])
    check_sum_and_maximum(x, Sets(x, offsets))


@pytest.mark.parametrize("width", [64, 80, 100])
def test_gradients_too_large_for_the_caches_are_written_whole(width):
    x = torch.randn(1 + kernels_numba.STREAM // (4 * width), width)
    check_sum_and_maximum(x, Sets(x, torch.tensor([0, 5, 5, 1000, len(x)])), exact=False)


def check_sum_and_maximum(x, sets, exact=True):
    leaf, offsets = x.clone().requires_grad_(), sets.offsets.tolist()
    grad = torch.arange(1.0, len(sets) * x.shape[1] + 1).reshape(len(sets), -1).to(x.dtype)
    total, mean, best = (f(leaf, sets) for f in (kernels.segment_sum, kernels.segment_mean, kernels.segment_max))
    (of_sum,), (of_mean,), (of_max,) = (torch.autograd.grad(out, leaf, grad) for out in (total, mean, best))
    for b, (start, stop) in enumerate(pairwise(offsets)):
        if start == stop:
            assert not total[b].any() and not best[b].any()
            continue
        rows = x[start:stop]
        assert torch.equal(total[b], rows.sum(0)) if exact else torch.allclose(total[b], rows.sum(0), atol=0.1)
        assert torch.equal(mean[b], total[b] / len(rows))
        assert torch.equal(of_mean[start:stop], (grad[b] / len(rows)).expand_as(rows))
        assert torch.equal(best[b], rows.amax(0))
        winners = (rows == rows.amax(0)).to(x.dtype)
        assert torch.equal(of_sum[start:stop], grad[b].expand_as(rows))
        assert torch.equal(of_max[start:stop], winners * (grad[b] / winners.sum(0)))


# ----------------------------------------------------------------------------- threads, processes, transformations


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_no_bit(monkeypatch, dtype):
    sets = large(dtype=dtype)
    monkeypatch.setattr(parallel, "PARALLEL_BYTES", 1)
    grad = torch.randn(len(sets), sets.width, dtype=dtype)

    def results() -> list[torch.Tensor]:
        found = []
        for function in (kernels.segment_sum, kernels.segment_max, lambda x, s: kernels.segment_moments(x, s)[1]):
            x = sets.values.clone().requires_grad_()
            out = function(x, sets)
            out.backward(grad)
            found += [out.detach(), x.grad]
        return found

    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    one = results()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert all(torch.equal(a, b) for a, b in zip(one, results(), strict=True))


def test_concurrent_callers_get_their_own_results(monkeypatch):
    monkeypatch.setattr(parallel, "PARALLEL_BYTES", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    sets = [large(total=4000 + 500 * k) for k in range(4)]
    wanted = [kernels_torch.segment_sum(s.values, s) for s in sets]
    wrong = []

    def call(k: int) -> None:
        for _ in range(10):
            if not torch.equal(kernels.segment_sum(sets[k].values, sets[k]), wanted[k]):
                wrong.append(k)

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_concurrent_threads_compile_a_new_kernel_once():
    """Numba fails with a KeyError when two threads compile one function at the same time."""

    @kernels_numba.loop()
    def twice(words):
        for b in kernels_numba._sets(words):
            kernels_numba._matrix(words, 0, kernels_numba.real)[b] *= 2

    found = []
    threads = [threading.Thread(target=lambda: found.append(twice(np.float32))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(map(id, found))) == 1


@pytest.mark.skipif(parallel._region is None, reason="needs OpenMP's GOMP_parallel")
def test_a_late_thread_is_not_waited_for_again(monkeypatch):
    monkeypatch.setattr(parallel, "PARALLEL_BYTES", 1)
    monkeypatch.setattr(parallel, "_busy_until", 0.0)
    monkeypatch.setattr(parallel, "_pause", 60.0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    regions = []

    def region(function, address, threads, flags):
        regions.append(threads)
        for _ in range(threads):  # the second thread comes when everything is done
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(address)
        time.sleep(2 * parallel.LATE)

    monkeypatch.setattr(parallel, "_region", region)
    sets = large(total=4000)
    wanted = kernels_torch.segment_sum(sets.values, sets)
    for _ in range(3):
        assert torch.equal(kernels.segment_sum(sets.values, sets), wanted)
    assert regions == [2]
    monkeypatch.setattr(parallel, "_busy_until", 0.0)  # the pause is over
    kernels.segment_sum(sets.values, sets)
    assert regions == [2, 2]


@pytest.mark.skipif(parallel._region is None, reason="needs OpenMP's GOMP_parallel")
def test_openmp_has_more_threads_than_cores_while_waiting_threads_are_to_sleep(monkeypatch):
    count = lambda: len(list(Path("/proc/self/task").iterdir()))  # noqa: E731
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    before = count()
    with pytest.raises(ZeroDivisionError), parallel.sleep_while_waiting(2):
        inside = count()
        raise ZeroDivisionError
    assert inside == before + 5  # with the 2 of torch more than 5
    deadline = time.monotonic() + 10
    while count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert count() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_starts_threads_of_its_own(monkeypatch):
    monkeypatch.setattr(parallel, "PARALLEL_BYTES", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    sets = large(total=4000)
    wanted = kernels.segment_sum(sets.values, sets)  # starts the helpers of this process
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(kernels.segment_sum(sets.values, sets), wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


def everything(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """All operators in one function."""
    sets = Sets.unchecked(x, offsets)
    parts = [kernels.segment_sum(x, sets), kernels.segment_max(x, sets), kernels.segment_min(x, sets)]
    parts += [kernels.segment_logsumexp(x, sets), kernels.segment_std(x, sets)]
    parts += [kernels.segment_mean(x, sets), *kernels.segment_moments(x, sets), kernels.segment_exp_sum(x, sets)[1]]
    parts += [kernels.segment_softmax(x[:, :1], x[:, None], sets)[2][:, 0]]
    return torch.stack(parts).square().sum(0)


@pytest.mark.slow
def test_compiled_graphs_hold_the_operators_and_give_the_same_gradients():
    x, offsets = torch.randn(9, WIDTH, requires_grad=True), torch.tensor([0, 4, 4, 5, 9])
    names: list[str] = []

    def backend(graph, _):
        names.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch.compile(everything, fullgraph=True, backend=backend)(x, offsets)
    assert {n.split(".")[1] for n in names if n.startswith("deepsets.")} >= {"segment_sum", "extremum"}
    compiled = torch.compile(everything, fullgraph=True, backend="aot_eager")
    found, wanted = compiled(x, offsets), everything(x, offsets)
    assert_near(found, wanted, 5)
    grad = torch.randn_like(found)
    assert_near(torch.autograd.grad(found, x, grad)[0], torch.autograd.grad(wanted, x, grad)[0], 50)


def test_operators_are_registered_as_torch_asks():
    x, offsets = torch.randn(9, WIDTH, requires_grad=True), torch.tensor([0, 4, 4, 5, 9])
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(torch.ops.deepsets.segment_sum, (x, offsets, None, None, True), test_utils=tests)
    torch.library.opcheck(torch.ops.deepsets.extremum, (x, offsets, 1, True), test_utils=tests)
    torch.library.opcheck(torch.ops.deepsets.moments, (x, offsets, None, False), test_utils=tests)


def test_exported_programs_work_with_the_operators_and_without():
    offsets = torch.tensor([0, 4, 4, 5, 9])
    x = torch.randn(9, WIDTH)

    class Operators(torch.nn.Module):
        def forward(self, x, offsets):
            return torch.ops.deepsets.extremum(x, offsets, 1, False)[0]

    class Plain(torch.nn.Module):
        def forward(self, x, offsets):
            return kernels.segment_max(x, Sets.unchecked(x, offsets))

    slow = torch.stack([x[:4].amax(0), torch.zeros(WIDTH), x[4], x[5:].amax(0)])
    for module, uses in ((Operators(), True), (Plain(), False)):
        program = torch.export.export(module, (x, offsets))
        assert torch.equal(program.module()(x, offsets), slow)
        assert any("deepsets" in str(node.target) for node in program.graph.nodes) == uses


def test_function_transforms_give_the_same_gradient():
    x, offsets = torch.randn(9, WIDTH, requires_grad=True), torch.tensor([0, 4, 4, 5, 9])
    (wanted,) = torch.autograd.grad(everything(x, offsets).sum(), x)
    found = torch.func.grad(lambda v: everything(v, offsets).sum())(x.detach())
    assert_near(found, wanted, 50)


def test_versions_name_the_kernels(capsys):
    assert kernels.implementation().startswith("numba 0.")
    deepsets.show_versions()
    assert f"kernels: {kernels.implementation()}" in capsys.readouterr().out


def test_a_change_of_any_module_of_kernels_makes_new_machine_code(tmp_path):
    folder = Path(kernels_numba.__file__).parent
    names = ["kernels_exp.py", "kernels_numba.py", "kernels_vector.py", "parallel.py"]
    keys = {kernels_numba.build_key(folder)}
    for name in names:
        (tmp_path / name).mkdir()
        for each in (*folder.glob("kernels_*.py"), folder / "parallel.py"):
            (tmp_path / name / each.name).write_bytes(each.read_bytes() + b"#" * (each.name == name))
        keys.add(kernels_numba.build_key(tmp_path / name))
    assert len(keys) == 1 + len(names)
    get = next(iter(kernels_numba.LOOPS.values()))
    assert get(np.float32)._pyfunc.__qualname__.endswith(kernels_numba.build_key(folder))
