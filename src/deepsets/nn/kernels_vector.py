"""Inner loops of the most used kernels, written as LLVM vector code through numba's extension interface.

A block is a stretch of columns, 8, 4 or 1 vectors of 64 bytes wide, whose results stay in registers while the rows of a
set pass by. Loops that numba vectorises load and store results at every row, and check there whether arrays overlap.
Each function here does rows of at least one vector and returns how many columns it did; narrower rows are left to the
caller, and 0 is returned. Arrays are contiguous and given by address.
"""
# mypy: ignore-errors

from __future__ import annotations

from functools import reduce

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BYTES = 64  # of a vector
CACHED = 1024  # rows of a set that, 512 bytes wide, stay in the cache of a core for a second pass
_INT32, _INT64 = ir.IntType(32), ir.IntType(64)


class _Block:
    """Code for the columns of one block: lists of vectors, one per 64 bytes."""

    def __init__(self, builder, real, count, column, row):
        self.builder, self.count, self.column, self.row = builder, count, column, row
        self.lanes = BYTES // (8 if isinstance(real, ir.DoubleType) else 4)
        self.reals, self.ints = ir.VectorType(real, self.lanes), ir.VectorType(_INT32, self.lanes)

    def fill(self, value, kind):
        """Vectors that hold one number."""
        if isinstance(value, (int, float)):
            return [ir.Constant(kind, [value] * self.lanes)] * self.count
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), value, _INT32(0))
        zeros = ir.Constant(ir.VectorType(_INT32, self.lanes), [0] * self.lanes)
        return [self.builder.shuffle_vector(first, first, zeros)] * self.count

    def _places(self, array, i, kind):
        size = _INT64(1 if kind is self.reals else BYTES // self.lanes // 4)  # winners have 4 bytes in either precision
        width, column = self.builder.udiv(self.row, size), self.builder.udiv(self.column, size)
        address = self.builder.add(self.builder.add(array, self.builder.mul(i, width)), column)
        first = self.builder.inttoptr(address, kind.as_pointer())
        return [self.builder.gep(first, [_INT64(k)]) for k in range(self.count)]

    def load(self, array, i, kind):
        """Columns of row i."""
        return [self.builder.load(place, align=4) for place in self._places(array, i, kind)]

    def store(self, values, array, i, kind, stream=False):
        for value, place in zip(values, self._places(array, i, kind), strict=True):
            done = self.builder.store(value, place, align=BYTES if stream else 4)
            if stream:
                done.set_metadata("nontemporal", self.builder.module.add_metadata([_INT32(1)]))

    def keep(self, values):
        """Variables, which LLVM keeps in registers."""
        found = [cgutils.alloca_once(self.builder, value.type) for value in values]
        for place, value in zip(found, values, strict=True):
            self.builder.store(value, place)
        return found

    def read(self, variables):
        return [self.builder.load(place) for place in variables]

    def rows(self, start, stop):
        return cgutils.for_range_slice(self.builder, start, stop, _INT64(1), _INT64)

    def store_rows(self, values_of, array, start, stop, stream):
        """Write values_of(i) to rows start <= i < stop; stream: past the caches."""
        for past, sign in ((True, "!="), (False, "==")):
            with self.builder.if_then(self.builder.icmp_signed(sign, stream, _INT64(0))):
                with self.rows(start, stop) as (i, _):
                    self.store(values_of(i), array, i, self.reals, past)


def _columns(builder, real, width, emit):
    """Emit code for the columns of a row; return how many were done: none where a row is less than a vector."""
    size = _INT64(8 if isinstance(real, ir.DoubleType) else 4)
    row, done = builder.mul(width, size), _INT64(0)
    for count in (8, 4, 1):
        blocks = builder.udiv(builder.sub(row, done), _INT64(BYTES * count))
        with cgutils.for_range(builder, blocks) as loop:
            column = builder.add(done, builder.mul(loop.index, _INT64(BYTES * count)))
            emit(_Block(builder, real, count, column, row))
        done = builder.add(done, builder.mul(blocks, _INT64(BYTES * count)))
    rest = builder.and_(builder.icmp_signed("<", done, row), builder.icmp_signed(">", done, _INT64(0)))
    with builder.if_then(rest):  # the last vector once more: columns that are done twice get the same result
        emit(_Block(builder, real, 1, builder.sub(row, _INT64(BYTES)), row))
    return builder.select(builder.icmp_signed(">", done, _INT64(0)), width, _INT64(0))


def _function(emit, real, count):
    """The signature and the code of a function of `count` integers and one real number."""

    def code(context, builder, signature, args):
        return _columns(builder, args[-1].type, args[0], lambda block: emit(block, builder, *args[1:]))

    return types.int64(*[types.int64] * count, real), code


@intrinsic
def sum_columns(context, width, values, start, stop, out, b, zero):
    """out[b] = Σ values[i] over start <= i < stop, one after another."""

    def emit(block, builder, values, start, stop, out, b, zero):
        total = block.keep(block.fill(zero, block.reals))
        with block.rows(start, stop) as (i, _):
            for place, x in zip(total, block.load(values, i, block.reals), strict=True):
                builder.store(builder.fadd(builder.load(place), x), place)
        block.store(block.read(total), out, b, block.reals)

    return _function(emit, zero, 6)


@intrinsic
def copy_to_rows(context, width, per_set, b, start, stop, out, stream, count):
    """out[i] = per_set[b] / count for start <= i < stop."""

    def emit(block, builder, per_set, b, start, stop, out, stream, count):
        counts = block.fill(count, block.reals)
        values = [builder.fdiv(x, n) for x, n in zip(block.load(per_set, b, block.reals), counts, strict=True)]
        block.store_rows(lambda i: values, out, start, stop, stream)

    return _function(emit, count, 7)


@intrinsic
def extremum_columns(context, width, values, start, stop, best, winners, b, sign):
    """best[b] = sign · max sign · values[i]; winners[b], unless 0 = the row, or minus the number of members that tie.

    One pass over the set finds the best, a second one, in the cache, who has it: fewer instructions than one pass for
    both. That is for sets too long for the cache, and for nan, which wins.
    """

    def emit(block, builder, values, start, stop, best, winners, b, sign):
        ones = block.fill(1, block.ints)

        def number(i):
            return block.fill(builder.trunc(i, _INT32), block.ints)

        def finish(top, place, ties):
            found = zip(place, ties, ones, strict=True)
            alone = [builder.select(builder.icmp_signed("==", n, one), i, builder.neg(n)) for i, n, one in found]
            block.store(top, best, b, block.reals)
            with builder.if_then(builder.icmp_signed("!=", winners, _INT64(0))):
                block.store(alone, winners, b, block.ints)

        def find_best():
            top, total = block.keep(block.load(values, start, block.reals)), block.keep(block.fill(0.0, block.reals))
            for relation, chosen in ((">", 1.0), ("<", -1.0)):
                with builder.if_then(builder.fcmp_ordered("==", sign, ir.Constant(sign.type, chosen))):
                    with block.rows(start, stop) as (i, _):
                        for x, y, sums in zip(block.load(values, i, block.reals), top, total, strict=True):
                            here = builder.load(y)
                            builder.store(builder.select(builder.fcmp_ordered(relation, x, here), x, here), y)
                            builder.store(builder.fadd(builder.load(sums), x), sums)
            return block.read(top), total

        def find_winners(top):
            found = block.keep(
                block.fill(0, block.ints)
            )  # how many have the best, times 2^20, + their places in the set
            with block.rows(start, stop) as (i, _):
                code = number(builder.add(builder.sub(i, start), _INT64(1 << 20)))
                for x, y, n, codes in zip(block.load(values, i, block.reals), top, found, code, strict=True):
                    more = builder.add(builder.load(n), codes)
                    builder.store(builder.select(builder.fcmp_ordered("==", x, y), more, builder.load(n)), n)
            low, mask = block.fill(20, block.ints), block.fill((1 << 20) - 1, block.ints)
            place = [
                builder.add(builder.and_(n, m), s)
                for n, m, s in zip(block.read(found), mask, number(start), strict=True)
            ]
            finish(top, place, [builder.lshr(n, k) for n, k in zip(block.read(found), low, strict=True)])

        def find_both():
            signs = block.fill(sign, block.reals)

            def row(i):
                return [builder.fmul(x, s) for x, s in zip(block.load(values, i, block.reals), signs, strict=True)]

            top, place, ties = block.keep(row(start)), block.keep(number(start)), block.keep(ones)
            with block.rows(builder.add(start, _INT64(1)), stop) as (i, _):
                for k, (x, here) in enumerate(zip(row(i), number(i), strict=True)):
                    y = builder.load(top[k])
                    wins = builder.or_(builder.fcmp_ordered(">", x, y), builder.fcmp_unordered("uno", x, x))
                    equal = builder.zext(builder.fcmp_ordered("==", x, y), block.ints)
                    builder.store(builder.select(wins, x, y), top[k])
                    builder.store(builder.select(wins, here, builder.load(place[k])), place[k])
                    builder.store(builder.select(wins, ones[k], builder.add(builder.load(ties[k]), equal)), ties[k])
            top = [builder.fmul(x, s) for x, s in zip(block.read(top), signs, strict=True)]
            finish(top, block.read(place), block.read(ties))

        one_pass = cgutils.alloca_once_value(
            builder, builder.icmp_signed(">", builder.sub(stop, start), _INT64(CACHED))
        )
        with builder.if_then(builder.not_(builder.load(one_pass))):
            top, total = find_best()
            nan = [builder.fcmp_unordered("uno", sums, sums) for sums in block.read(total)]
            some = builder.bitcast(reduce(builder.or_, nan), ir.IntType(block.lanes))
            with builder.if_else(builder.icmp_signed("==", some, some.type(0))) as (finite, other):
                with finite:
                    with builder.if_else(builder.icmp_signed("==", winners, _INT64(0))) as (unwanted, wanted):
                        with unwanted:
                            block.store(top, best, b, block.reals)
                        with wanted:
                            find_winners(top)
                with other:
                    builder.store(ir.IntType(1)(1), one_pass)
        with builder.if_then(builder.load(one_pass)):
            find_both()

    return _function(emit, sign, 7)


@intrinsic
def give_to_winners(context, width, grad, winners, b, start, stop, out, stream, zero):
    """out[i] = grad[b] where winners[b] is i, else 0, for start <= i < stop."""

    def emit(block, builder, grad, winners, b, start, stop, out, stream, zero):
        values, places = block.load(grad, b, block.reals), block.load(winners, b, block.ints)
        nothing = block.fill(zero, block.reals)

        def gets(i):
            here = block.fill(builder.trunc(i, _INT32), block.ints)
            found = zip(values, places, here, nothing, strict=True)
            return [builder.select(builder.icmp_signed("==", p, h), g, z) for g, p, h, z in found]

        block.store_rows(gets, out, start, stop, stream)

    return _function(emit, zero, 8)
