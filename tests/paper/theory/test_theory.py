"""The theorems of the paper, as code, against slow oracles and at their corners."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paper.theory import (
    approximate,
    as_power_sums,
    as_sum,
    as_weighted_sum,
    decode,
    encode,
    from_power_sums,
    is_equivariant,
    largest,
    mean,
    monomial_sums,
    pair_product,
    power_sums,
    project_equivariant,
    second_largest,
    second_largest_as_printed,
    triple_product,
)

both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
unit = st.floats(0, 1, allow_subnormal=False)


def sets_of(sizes, numbers=unit):
    return sizes.flatmap(lambda size: st.lists(numbers, min_size=size, max_size=size)).map(
        lambda x: torch.tensor(x, dtype=torch.float64)
    )


def uniform(*shape, seed=0, dtype=torch.float64):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# --- the countable code ------------------------------------------------------------------------------------------


@given(st.dictionaries(st.integers(1, 300), st.integers(1, 3)))
def test_a_multiset_comes_back_from_its_code(counts):
    assert decode(encode(Counter(counts).elements())) == counts


@given(st.integers(0, 2**40), st.integers(0, 40))
def test_every_dyadic_fraction_below_one_is_the_code_of_one_multiset(numerator, halvings):
    code = Fraction(numerator, 2**halvings) % 1
    assert encode(decode(code).elements()) == code


def test_all_multisets_of_four_numbers_have_different_codes():
    codes = [
        sum(count * Fraction(1, 4**i) for i, count in enumerate(counts, 1))
        for counts in itertools.product(range(4), repeat=4)
    ]
    assert len(set(codes)) == 4**4
    assert [encode(Counter(dict(enumerate(c, 1))).elements()) for c in itertools.product(range(4), repeat=4)] == codes


def test_the_empty_set_has_the_code_zero():
    assert encode([]) == 0
    assert decode(0) == Counter()


def test_floats_hold_26_digits_in_base_4_and_no_more():
    all_three = [i for i in range(1, 27) for _ in range(3)]
    assert Fraction(float(encode(all_three))) == encode(all_three)
    assert Fraction(float(encode([*all_three, 27]))) != encode([*all_three, 27])
    assert 4.0**-1 + 4.0**-28 == 4.0**-1
    assert decode(encode([1, 28])) == {1: 1, 28: 1}


def test_a_fourth_copy_is_refused():
    with pytest.raises(
        ValueError, match=r"7 occurs 4 times, .* at most 3 copies: 4 copies of 7 would read as 1 copy of 6"
    ):
        encode([7, 7, 1, 7, 7])


def test_numbers_below_one_are_refused():
    with pytest.raises(ValueError, match=r"found the number 0: elements are numbered 1, 2, 3"):
        encode([0])


@pytest.mark.parametrize("code", [Fraction(-1, 4), Fraction(5, 4), 1])
def test_codes_outside_the_unit_interval_are_refused(code):
    with pytest.raises(ValueError, match=rf"found the code {code}, but the codes of sets lie in \[0, 1\)"):
        decode(code)


def test_codes_that_never_end_in_base_4_are_refused():
    with pytest.raises(ValueError, match=r"found the code 1/3, whose digits in base 4 never end: .* here it is 3"):
        decode(Fraction(1, 3))


def test_a_float_is_no_code():
    with pytest.raises(TypeError, match=r"found the code 0.25 of type float: a code must be exact"):
        decode(0.25)


@given(st.sets(st.sampled_from("abcdefgh")), st.randoms())
def test_any_function_of_a_set_is_rho_of_a_sum(letters, random):
    def f(elements):
        return hash(frozenset(elements))  # as wild as functions come

    phi, rho = as_sum(f, "abcdefgh")
    order = sorted(letters)
    random.shuffle(order)
    assert rho(sum(phi(x) for x in order)) == f(letters)


def test_a_function_of_a_multiset_sees_every_copy():
    phi, rho = as_sum("".join, "abc")
    assert rho(sum(map(phi, "cacac"))) == "aaccc"


def test_elements_outside_the_universe_are_refused():
    phi, rho = as_sum(len, "abc")
    with pytest.raises(ValueError, match=r"'z' is not in the universe of 3 elements"):
        phi("z")
    with pytest.raises(ValueError, match=r"the code has element number 4, but the universe has 3 elements"):
        rho(Fraction(1, 4**4))


def test_a_universe_with_a_double_is_refused():
    with pytest.raises(ValueError, match=r"'b' is in the universe twice, at places 2 and 4"):
        as_sum(len, "abcb")


# --- power sums --------------------------------------------------------------------------------------------------


@both_dtypes
def test_power_sums_equal_the_plain_loop(dtype):
    x = uniform(4, 3, 6, dtype=dtype) * 2 - 1
    slow = torch.stack([sum(x[..., m].double() ** q for m in range(6)) for q in range(7)], -1)
    torch.testing.assert_close(power_sums(x), slow, rtol=1e-14, atol=1e-14)


def test_power_sums_have_a_finite_gradient_at_zero():
    x = torch.zeros(3, requires_grad=True)
    power_sums(x).sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


@given(sets_of(st.integers(1, 10)))
def test_the_set_that_comes_back_has_the_same_power_sums(x):
    z = power_sums(x)
    back = power_sums(from_power_sums(z))
    assert (back - z).abs().max() <= 1e-6 * len(x)
    assert torch.allclose(back[:3], z[:3], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("size", "median", "worst"), [(1, 0, 0), (2, 1e-15, 1e-9), (5, 1e-12, 1e-5), (10, 1e-7, 2e-2)])
def test_random_sets_come_back(size, median, worst):
    x = uniform(300, size).sort(-1).values
    z = power_sums(x)
    back = from_power_sums(z)
    error = (back - x).abs().amax(-1)
    assert error.median() <= median
    assert error.max() <= worst
    torch.testing.assert_close(power_sums(back), z, rtol=0, atol=1e-12)


def test_the_error_of_random_sets_is_the_rounding_of_their_power_sums():
    x = uniform(300, 8).sort(-1).values
    z = power_sums(x)
    q = torch.arange(1, 9, dtype=x.dtype)[:, None]
    jacobian = q * x[:, None] ** (q - 1)
    unavoidable = (torch.linalg.inv(jacobian).abs() @ z[:, 1:, None]).squeeze(-1) * torch.finfo(x.dtype).eps / 2
    assert ((from_power_sums(z) - x).abs().amax(-1) <= 4 * unavoidable.amax(-1)).all()


@pytest.mark.parametrize("copies", [2, 3, 4])
def test_repeated_elements_come_back_to_a_root_of_the_rounding(copies):
    x = torch.cat([uniform(200, 1).expand(-1, copies) * 0.3, 0.6 + 0.1 * torch.arange(2.0).expand(200, -1)], -1)
    z = power_sums(x)
    back = from_power_sums(z)
    error = (back - x.sort(-1).values).abs().amax(-1)
    assert error.median() <= 10 * torch.finfo(x.dtype).eps ** (1 / copies)
    torch.testing.assert_close(power_sums(back), z, rtol=0, atol=1e-10)


@pytest.mark.parametrize("spread", [0, 1e-6, 1e-3, 1e-2])
def test_clustered_sets_keep_their_power_sums(spread):
    values = uniform(100, 3, seed=1)
    pick = torch.randint(0, 3, (100, 10), generator=torch.Generator().manual_seed(2))
    x = values.gather(1, pick) + spread * uniform(100, 10, seed=3)
    z = power_sums(x)
    miss = (power_sums(from_power_sums(z)) - z).abs().amax(-1)
    assert miss.median() <= 1e-12
    assert miss.max() <= 1e-6


@pytest.mark.parametrize(("low", "high"), [(-100, 100), (1e-20, 3e-20), (-1e20, 1e20)])
def test_sets_of_any_scale_come_back(low, high):
    x = (low + (high - low) * uniform(100, 5)).sort(-1).values
    assert ((from_power_sums(power_sums(x)) - x).abs() / high).max() <= 1e-4


@given(st.permutations([0.1, 0.25, 0.25, 0.7, 0.9]))
def test_the_order_of_the_elements_does_not_matter(x):
    back = from_power_sums(power_sums(torch.tensor(x, dtype=torch.float64)))
    torch.testing.assert_close(back, torch.tensor(sorted(x), dtype=torch.float64), rtol=0, atol=1e-6)


def test_float32_elements_come_back_to_float32_precision():
    x = uniform(100, 4, dtype=torch.float32).sort(-1).values
    torch.testing.assert_close(from_power_sums(power_sums(x)).float(), x, rtol=0, atol=1e-6)


def test_empty_sets_empty_batches_and_batches_of_batches_keep_their_shapes():
    assert power_sums(torch.zeros(3, 0)).tolist() == [[0], [0], [0]]
    assert from_power_sums(power_sums(torch.zeros(3, 0))).shape == (3, 0)
    assert from_power_sums(power_sums(torch.zeros(0, 4))).shape == (0, 4)
    assert from_power_sums(power_sums(uniform(2, 3, 4))).shape == (2, 3, 4)
    assert from_power_sums(power_sums(uniform(4))).shape == (4,)


def test_a_set_of_zeros_comes_back():
    assert from_power_sums(power_sums(torch.zeros(6))).abs().max() <= 1e-8


def test_elements_whose_powers_vanish_come_back_as_small():
    assert from_power_sums(power_sums(torch.tensor([0, 1e-217], dtype=torch.float64))).abs().max() <= 1e-150


def test_large_sets_are_blurred_but_keep_their_power_sums():
    z = power_sums(uniform(10, 30))
    assert (power_sums(from_power_sums(z)) - z).abs().max() <= 1e-5


def test_power_sums_of_complex_numbers_are_refused():
    with pytest.raises(
        ValueError, match=r"row 1 is not the power sums of 2 real numbers: found \[2, 0, -2\], but the nearest"
    ):
        from_power_sums(torch.tensor([[2.0, 0, 2], [2.0, 0, -2]], dtype=torch.float64))  # {-1, 1} and {-i, i}


@given(st.lists(st.floats(-1.7e308, 1.7e308) | st.floats(-1, 1), min_size=1, max_size=12))
def test_any_numbers_are_either_inverted_or_refused(rest):
    z = torch.tensor([len(rest), *rest], dtype=torch.float64)
    try:
        x = from_power_sums(z)
    except ValueError as error:
        assert "is not the power sums of" in str(error)
    else:
        assert x.isfinite().all()


def test_power_sums_of_another_size_are_refused():
    z = torch.stack([power_sums(uniform(4)), torch.cat([power_sums(uniform(3)), torch.zeros(1)])])
    with pytest.raises(
        ValueError, match=r"row 1 has E_0 = 3, .* but 5 columns hold the power sums of sets of 4. Invert"
    ):
        from_power_sums(z)


def test_nan_is_refused_with_its_place():
    x = torch.tensor([[0.5, 1.0], [0.5, math.nan]], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"the elements must be finite: found nan at \[1, 1\] of shape \(2, 2\)"):
        power_sums(x)
    with pytest.raises(ValueError, match=r"the power sums must be finite: found inf at \[1\] of shape \(3,\)"):
        from_power_sums(torch.tensor([2, math.inf, 1], dtype=torch.float64))


def test_tensors_that_hold_no_power_sums_are_refused():
    with pytest.raises(ValueError, match=r"found a tensor of shape \(2, 0\), wanted power sums"):
        from_power_sums(torch.zeros(2, 0, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"found power sums in torch.float32, wanted torch.float64"):
        from_power_sums(torch.ones(2))
    with pytest.raises(ValueError, match=r"found a single number, wanted sets of shape"):
        power_sums(torch.tensor(1.0))


@pytest.mark.parametrize(
    ("f", "atol"),
    [
        (lambda x: x.amax(-1), 1e-4),
        (lambda x: x.median(-1).values, 1e-4),
        (lambda x: x.var(-1), 1e-12),
        (lambda x: x.prod(-1), 1e-12),
        (lambda x: (5 * x).sin().sum(-1), 1e-10),
    ],
)
def test_any_invariant_function_is_rho_of_the_power_sums(f, atol):
    phi, rho = as_power_sums(f, size=5)
    x = uniform(200, 5)
    torch.testing.assert_close(rho(phi(x).sum(-2)), f(x), rtol=0, atol=atol)


def test_rho_refuses_power_sums_of_another_size():
    _, rho = as_power_sums(lambda x: x.sum(-1), size=3)
    with pytest.raises(ValueError, match=r"found a tensor of shape \(5,\), wanted \(…, 4\), for sets of 3"):
        rho(power_sums(uniform(4)))


def test_the_printed_determinant_is_right_only_with_its_factors_put_back():
    """Lemma 4 prints a_m = det(…)/m with ones above the diagonal; it is det(…)/m! with 1, 2, …, m - 1 there."""
    x = np.array([0.2, 0.5, 0.7, 0.9])
    z = [(x**q).sum() for q in range(5)]
    for m in range(1, 5):
        lower = np.array([[z[i - j + 1] if j <= i else 0.0 for j in range(m)] for i in range(m)])
        printed = np.linalg.det(lower + np.eye(m, k=1)) / m
        right = np.linalg.det(lower + np.diag(np.arange(1.0, m), k=1)) / math.factorial(m)
        elementary = sum(math.prod(chosen) for chosen in itertools.combinations(x, m))
        assert right == pytest.approx(elementary, rel=1e-12)
        assert (printed == pytest.approx(elementary, rel=1e-3)) == (m <= 2)


# --- the worked examples -----------------------------------------------------------------------------------------


@both_dtypes
@pytest.mark.parametrize(("example", "size"), [(pair_product, 2), (triple_product, 3), (mean, 1), (mean, 7)])
def test_the_exact_examples_equal_the_plain_function(example, size, dtype):
    x = uniform(50, size, dtype=dtype) * 4 - 2
    torch.testing.assert_close(example(x), example.exact(x), rtol=0, atol=1e3 * torch.finfo(dtype).eps)


def test_the_mean_of_no_elements_is_zero():
    assert mean(torch.zeros(2, 0)).tolist() == [0, 0]
    assert mean.exact(torch.zeros(2, 0)).tolist() == [0, 0]


@given(sets_of(st.integers(1, 20), st.floats(-3, 3)), st.sampled_from([1.0, 10.0, 100.0]))
def test_largest_lies_below_the_maximum_by_at_most_its_bound(x, alpha):
    example = largest(alpha)
    below = example.exact(x) - example(x)
    assert -1e-12 <= below <= math.log(len(x)) / alpha + 1e-12


def test_the_bound_of_largest_is_near_to_the_worst_case():
    alpha, others = 10.0, 99
    gaps = torch.linspace(0, 1, 1001, dtype=torch.float64)
    x = torch.cat([torch.ones(1001, 1), (1 - gaps)[:, None].expand(-1, others)], -1)
    worst = (1 - largest(alpha)(x)).max()
    assert 0.5 * math.log(100) / alpha < worst < math.log(100) / alpha


@given(sets_of(st.integers(2, 20)), st.sampled_from([5.0, 30.0]))
def test_second_largest_lies_within_its_bounds(x, alpha):
    example = second_largest(alpha)
    error = example(x) - example.exact(x)
    assert -math.log(2) / alpha - 1e-3 <= error <= math.log(len(x) - 1) / alpha + 1e-3


@both_dtypes
def test_second_largest_tends_to_the_second_largest(dtype):
    x = torch.tensor([[0.1, 0.55, 0.8, 0.3], [0.8, 0.8, 0.2, 0.5]], dtype=dtype)
    near, nearer = ((second_largest(alpha)(x) - torch.tensor([0.55, 0.8], dtype=dtype)).abs() for alpha in (10, 40))
    assert (nearer < near / 2).all()
    assert (nearer < 0.02).all()


@given(sets_of(st.integers(2, 10)), st.sampled_from([5.0, 20.0]))
def test_the_fifth_example_as_printed_is_the_fourth(x, alpha):
    torch.testing.assert_close(second_largest_as_printed(alpha)(x), largest(alpha)(x), rtol=0, atol=1e-6)


def test_the_fifth_example_as_printed_gives_the_largest_and_not_the_second():
    x = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    example = second_largest_as_printed(alpha=30)
    assert example.exact(x) == 0.5
    assert example(x) == pytest.approx(0.9, abs=1e-4)
    assert second_largest(alpha=30)(x) == pytest.approx(0.5, abs=1e-4)


def test_elements_beyond_the_exponential_are_refused():
    with pytest.raises(
        ValueError, match=r"found the element -3: alpha = 50 times an element must stay within ±79.85 in torch.float32"
    ):
        largest(50)(torch.tensor([1.0, -3.0]))
    with pytest.raises(ValueError, match=r"found the element nan"):
        second_largest(1)(torch.tensor([1.0, math.nan]))


@both_dtypes
def test_elements_up_to_the_limit_stay_finite(dtype):
    limit = 0.9 * math.log(torch.finfo(dtype).max)
    x = torch.tensor([1, 0.99, -1], dtype=dtype) * limit * 0.99
    assert largest(1)(x) == pytest.approx(x.max().item(), abs=math.log(3))
    assert second_largest(0.5)(x[:2]) == pytest.approx(x[1].item(), abs=2 * math.log(2))


def test_a_second_element_that_rounding_has_lost_is_refused():
    with pytest.raises(ValueError, match=r"1 of 2 sets show no second element: .* alpha = 100"):
        second_largest(100)(torch.tensor([[0.9, 0.8], [0.9, 0.1]], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"1 of 1 sets show no second element: they have fewer than 2 elements"):
        second_largest(1)(torch.tensor([0.3]))
    with pytest.raises(ValueError, match=r"2 of 2 sets show no second element"):
        second_largest(1)(torch.zeros(2, 0))


def test_the_largest_of_no_elements_is_nan():
    assert largest(1)(torch.zeros(2, 0)).isnan().all()


# --- Lemma 3 -----------------------------------------------------------------------------------------------------


def permutation_matrices(size, dtype):
    return torch.stack([torch.eye(size, dtype=dtype)[list(order)] for order in itertools.permutations(range(size))])


@both_dtypes
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_the_projection_is_the_mean_over_all_permutations(size, dtype):
    theta = uniform(3, size, size, dtype=dtype)
    slow = torch.stack([p.T @ theta @ p for p in permutation_matrices(size, dtype)]).mean(0)
    lam, gamma, matrix = project_equivariant(theta)
    torch.testing.assert_close(matrix, slow)
    torch.testing.assert_close(lam[:, None, None] * torch.eye(size, dtype=dtype) + gamma[:, None, None], matrix)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_projection_is_the_least_squares_fit(size):
    theta = uniform(size, size)
    basis = torch.stack([torch.eye(size, dtype=theta.dtype).flatten(), torch.ones(size * size, dtype=theta.dtype)], -1)
    fit = basis @ torch.linalg.pinv(basis) @ theta.flatten()
    torch.testing.assert_close(project_equivariant(theta).matrix.flatten(), fit)


@both_dtypes
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_a_matrix_is_equivariant_if_and_only_if_it_commutes_with_all_permutations(size, dtype):
    free = uniform(size, size, dtype=dtype)
    tied = project_equivariant(free).matrix
    almost = tied.clone()
    almost[-1, 0] += 0.01
    for theta in (free, tied, almost, tied - tied):
        commutes = all(torch.allclose(p @ theta, theta @ p) for p in permutation_matrices(size, dtype))
        assert is_equivariant(theta) == commutes


@given(st.integers(1, 30), st.floats(-5, 5), st.floats(-5, 5))
def test_lambda_and_gamma_come_back_from_their_matrix(size, lam, gamma):
    theta = lam * torch.eye(size, dtype=torch.float64) + gamma
    assert is_equivariant(theta)
    found = project_equivariant(theta)
    assert found.lam + found.gamma == pytest.approx(lam + gamma, abs=1e-12)
    assert found.gamma == pytest.approx(gamma if size > 1 else 0, abs=1e-12)


def test_a_large_diagonal_does_not_drown_the_rest():
    theta = torch.full((4, 4), 1e-3) + 1e6 * torch.eye(4)
    assert project_equivariant(theta).gamma == pytest.approx(1e-3, rel=1e-6)


def test_one_element_is_equivariant_and_has_no_gamma():
    lam, gamma, matrix = project_equivariant(torch.tensor([[3.0]]))
    assert (lam.item(), gamma.item(), matrix.item()) == (3, 0, 3)
    assert is_equivariant(torch.tensor([[3.0]]))


def test_a_matrix_for_no_elements_is_equivariant():
    assert project_equivariant(torch.zeros(2, 0, 0)).matrix.shape == (2, 0, 0)
    assert is_equivariant(torch.zeros(2, 0, 0)).tolist() == [True, True]


def test_what_is_not_a_square_matrix_is_refused():
    with pytest.raises(ValueError, match=r"found a tensor of shape \(2, 3\), wanted square matrices"):
        project_equivariant(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"found a tensor of torch.int64, wanted a floating-point tensor"):
        is_equivariant(torch.ones(2, 2, dtype=torch.int64))


# ---------------------------------------------------------------------------------------------------- theorems 8 and 9


@given(st.integers(1, 4), st.integers(1, 3), st.data())
def test_any_function_of_tuples_is_rho_of_a_weighted_sum(k, size, data):
    universe = [f"e{i}" for i in range(k)]
    table = {x: data.draw(st.integers(0, 9)) for x in itertools.product(universe, repeat=size)}
    phi, weights, rho = as_weighted_sum(table.__getitem__, universe, size)
    for x, value in table.items():
        assert rho(sum(w * phi(e) for w, e in zip(weights, x, strict=True))) == value


def test_sums_of_monomials_equal_the_plain_loop():
    x = uniform(2, 4, 2)
    a, b = x[..., 0], x[..., 1]
    slow = [a, b, a**2, a * b, b**2, a**3, a**2 * b, a * b**2, b**3]
    torch.testing.assert_close(monomial_sums(x, 3), torch.stack([m.sum(-1) for m in slow], -1))


def test_symmetric_polynomials_are_exact_and_other_functions_come_nearer_with_the_degree():
    train, test = uniform(400, 3, 2), uniform(100, 3, 2, seed=1)

    def polynomial(x):  # of degree 4, invariant
        return x.prod(-1).sum(-1) ** 2 - x[..., 0].prod(-1) * x[..., 1].sum(-1)

    sums, rho = approximate(polynomial, train, degree=4)
    torch.testing.assert_close(rho(sums(test)), polynomial(test), rtol=0, atol=1e-8)

    def farthest(x):
        return torch.cdist(x, x).amax((-1, -2))

    errors = []
    for degree in (1, 2, 3):
        sums, rho = approximate(farthest, train, degree)
        errors.append(float((rho(sums(test)) - farthest(test)).abs().mean()))
        torch.testing.assert_close(rho(sums(test)), rho(sums(test.flip(1))))
    assert errors[0] > 2 * errors[1] > errors[2]
