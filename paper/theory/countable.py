"""A set of countably many possible elements as one number (Theorem 2, appendix A.1)."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from typing import TypeVar

Element = TypeVar("Element", bound=Hashable)
Answer = TypeVar("Answer")

MOST_COPIES = 3  # the largest digit in base 4


def encode(numbers: Iterable[int]) -> Fraction:
    r"""The code of a set of natural numbers 1, 2, 3, …:  $\sum_{c ∈ X} 4^{-c}$.

    >>> encode({1, 3})
    Fraction(17, 64)
    >>> encode([2, 2, 2])  # a multiset: up to 3 copies
    Fraction(3, 16)
    >>> encode([])
    Fraction(0, 1)

    In base 4 the code reads 0.d₁d₂d₃…, where dᵢ says how often i occurs. Base 2 would do for sets; base 4, the
    paper's choice, has room for three copies. The code is an exact `Fraction`: a float64 holds only 26 digits.
    """
    counts = Counter(numbers)
    for number, count in counts.items():
        if number < 1:
            raise ValueError(f"found the number {number}: elements are numbered 1, 2, 3, …")
        if count > MOST_COPIES:
            raise ValueError(
                f"{number} occurs {count} times, but a digit in base 4 counts at most 3 copies: "
                f"4 copies of {number} would read as 1 copy of {number - 1}."
            )
    digits = max(counts, default=0)
    numerator = sum(count << 2 * (digits - number) for number, count in counts.items())
    return Fraction(numerator, 1 << 2 * digits)


def decode(code: Fraction | int) -> Counter[int]:
    """How often each number occurs in the set with this code; the inverse of `encode`.

    >>> decode(Fraction(17, 64))
    Counter({1: 1, 3: 1})
    >>> sorted(decode(encode([7, 5, 5])).elements())
    [5, 5, 7]
    """
    if not isinstance(code, Fraction | int):
        raise TypeError(
            f"found the code {code!r} of type {type(code).__name__}: a code must be exact, a Fraction or an int. "
            f"A float holds no more than 26 digits in base 4."
        )
    code = Fraction(code)
    if not 0 <= code < 1:
        raise ValueError(f"found the code {code}, but the codes of sets lie in [0, 1).")
    halvings = code.denominator.bit_length() - 1
    if code.denominator != 1 << halvings:
        raise ValueError(
            f"found the code {code}, whose digits in base 4 never end: the denominator of the code of a set is a "
            f"power of 2, here it is {code.denominator}."
        )
    digits = (halvings + 1) // 2
    numerator = code.numerator << 2 * digits - halvings
    counts: Counter[int] = Counter()
    for number in range(1, digits + 1):
        if count := numerator >> 2 * (digits - number) & 3:
            counts[number] = count
    return counts


def as_sum(
    f: Callable[[tuple[Element, ...]], Answer], universe: Iterable[Element]
) -> tuple[Callable[[Element], Fraction], Callable[[Fraction | int], Answer]]:
    r"""Theorem 2: phi and rho with $f(X) = ρ(\sum_{x ∈ X} φ(x))$, for any function of subsets of a universe.

    >>> phi, rho = as_sum(lambda fruits: " and ".join(fruits), universe=["apple", "fig", "pear"])
    >>> rho(sum(phi(x) for x in ["pear", "apple"]))
    'apple and pear'

    phi does not depend on f: it is $4^{-c(x)}$, where c is the place of x in the universe. rho decodes the sum and asks
    f, which gets the elements as a tuple, in the order of the universe, each up to three times.
    """
    elements = list(universe)
    places: dict[Element, int] = {}
    for place, element in enumerate(elements, start=1):
        if places.setdefault(element, place) != place:
            raise ValueError(f"{element!r} is in the universe twice, at places {places[element]} and {place}.")

    def phi(x: Element) -> Fraction:
        if x not in places:
            raise ValueError(f"{x!r} is not in the universe of {len(elements)} elements.")
        return Fraction(1, 1 << 2 * places[x])

    def rho(code: Fraction | int) -> Answer:
        counts = decode(code)
        unknown = max(counts, default=0)
        if unknown > len(elements):
            raise ValueError(f"the code has element number {unknown}, but the universe has {len(elements)} elements.")
        return f(tuple(elements[number - 1] for number in counts.elements()))

    return phi, rho


def as_weighted_sum(
    f: Callable[[tuple[Element, ...]], Answer], universe: Iterable[Element], size: int
) -> tuple[Callable[[Element], int], list[int], Callable[[int], Answer]]:
    r"""Theorem 8 (Kolmogorov-Arnold) on a finite grid: $f(x_1, …, x_M) = ρ(\sum_m λ_m φ(x_m))$ for any function.

    On continuous functions the theorem is not constructive in a useful sense; on the grid `universe`^size it is: φ
    numbers the elements, $λ_m = k^m$, and the sum, read in base k, is the tuple. The weights λ tell the coordinates
    apart. Where f is invariant they can be dropped: with counts in place of places this is `as_sum`. Here f takes
    tuples of `size` elements of the universe of k. Returned are φ, the list of λ, and ρ.

    >>> phi, weights, rho = as_weighted_sum("".join, "abc", size=3)
    >>> weights, rho(sum(w * phi(x) for w, x in zip(weights, "cab")))
    ([1, 3, 9], 'cab')
    """
    elements = list(universe)
    places = {element: place for place, element in enumerate(elements)}
    weights = [len(elements) ** m for m in range(size)]

    def rho(code: int) -> Answer:
        return f(tuple(elements[code // weight % len(elements)] for weight in weights))

    return places.__getitem__, weights, rho
