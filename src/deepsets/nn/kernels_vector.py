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
    """Emit code for the columns of a row; return how many were done.

    None where a row is less than a vector, or where the code of a block returns that it failed.
    """
    good = cgutils.alloca_once_value(builder, ir.IntType(1)(1))

    def emit_block(count, column):
        done = emit(_Block(builder, real, count, column, row))
        if done is not None:
            builder.store(builder.and_(builder.load(good), done), good)

    size = _INT64(8 if isinstance(real, ir.DoubleType) else 4)
    row, done = builder.mul(width, size), _INT64(0)
    for count in (8, 4, 1):
        blocks = builder.udiv(builder.sub(row, done), _INT64(BYTES * count))
        with cgutils.for_range(builder, blocks) as loop:
            column = builder.add(done, builder.mul(loop.index, _INT64(BYTES * count)))
            emit_block(count, column)
        done = builder.add(done, builder.mul(blocks, _INT64(BYTES * count)))
    rest = builder.and_(builder.icmp_signed("<", done, row), builder.icmp_signed(">", done, _INT64(0)))
    with builder.if_then(rest):  # the last vector once more: columns that are done twice get the same result
        emit_block(1, builder.sub(row, _INT64(BYTES)))
    all_done = builder.and_(builder.icmp_signed(">", done, _INT64(0)), builder.load(good))
    return builder.select(all_done, width, _INT64(0))


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

    One pass over the set finds the best, a second one, mostly in the cache, who has it: fewer instructions than one
    pass for both. A set with nan, which should win and here does not, is left to the caller.
    """

    def emit(block, builder, values, start, stop, best, winners, b, sign):
        top, total = block.keep(block.load(values, start, block.reals)), block.keep(block.fill(0.0, block.reals))
        for relation, chosen in ((">", 1), ("<", -1)):
            with builder.if_then(builder.fcmp_ordered("==", sign, ir.Constant(sign.type, chosen))):
                with block.rows(start, stop) as (i, _):
                    for x, y, sums in zip(block.load(values, i, block.reals), top, total, strict=True):
                        here = builder.load(y)
                        builder.store(builder.select(builder.fcmp_ordered(relation, x, here), x, here), y)
                        builder.store(builder.fadd(builder.load(sums), x), sums)
        top = block.read(top)
        block.store(top, best, b, block.reals)
        with builder.if_then(builder.icmp_signed("!=", winners, _INT64(0))):
            place, ties = (block.keep(block.fill(0, block.ints)) for _ in range(2))
            with block.rows(start, stop) as (i, _):
                here = block.fill(builder.trunc(i, _INT32), block.ints)[0]
                for k, x in enumerate(block.load(values, i, block.reals)):
                    equal = builder.fcmp_ordered("==", x, top[k])
                    builder.store(builder.select(equal, here, builder.load(place[k])), place[k])
                    builder.store(builder.add(builder.load(ties[k]), builder.zext(equal, block.ints)), ties[k])
            one, found = block.fill(1, block.ints)[0], zip(block.read(place), block.read(ties), strict=True)
            alone = [builder.select(builder.icmp_signed("==", n, one), i, builder.neg(n)) for i, n in found]
            block.store(alone, winners, b, block.ints)
        nan = reduce(builder.or_, [builder.fcmp_unordered("uno", x, x) for x in block.read(total)])
        return builder.icmp_signed("==", builder.bitcast(nan, ir.IntType(block.lanes)), ir.IntType(block.lanes)(0))

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
