"""Elementary functions for CPU kernels: float32 polynomials on a scalar or a vector of lanes.

TVM lowers `exp` or `tanh` of a vector to one scalar libm call a lane; these expressions stay in
vector registers and use only add, multiply, compare and integer instructions (`tanh`, `sigmoid`
and `erf` of large arguments divide once or take one `exp`). Each is accurate to about 2 units in
the last place over the whole range (`normal_cdf` of 1), keeps NaN, and is exact at the limits. A
function emits statements (see `hold`), so it is called where its result is stored, with an
IRBuilder in scope.

Where the coefficients come from: each polynomial is the minimax fit (Lawson's iteratively
reweighted least squares in float64 on 4,001 Chebyshev nodes) of the function named beside it,
weighted so that the relative error of the final result is equalised, then rounded to float32.
The range reductions are the classical ones of Cody & Waite, "Software Manual for the Elementary
Functions" (1980). May import: tvm,
tfgraph.backends.tvm.cpu.emit, tfgraph.backends.rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from tfgraph.backends.rounding import Accuracy
from tfgraph.backends.tvm.cpu.emit import hold

Expr = Any
"""A float32 (or int32) expression of TVM, scalar or vector."""

# (e^r - 1 - r) / r^2 on |r| <= ln(2)/2; relative error of e^r 3.1e-9.
_EXP = (0.49999994, 0.1666652, 0.041668393, 0.008368781, 0.0013814467)
# The same function, weighted for the relative error of e^r - 1: 2.4e-10.
_EXPM1 = (0.5, 0.16666666, 0.04166636, 0.00833339, 0.001394072, 0.00019845886)
# (2^r - 1) / r on |r| <= 1/2; relative error of 2^r 2.0e-9.
_EXP2 = (0.6931472, 0.24022648, 0.05550332, 0.009618439, 0.0013399003, 0.00015353258)
# (ln(1+f) - f + f^2/2) / f^3 on sqrt(1/2) <= 1+f <= sqrt(2); relative error of ln 7.5e-10.
_LOG = (
    *(0.33333313, -0.25000009, 0.20002122, -0.16667993, 0.1421946),
    *(-0.124055736, 0.11888886, -0.116761185, 0.067455254),
)
# erf(x) / x - 1 in powers of x^2 on |x| <= 0.93; relative error of erf 4.6e-10.
ERF_SMALL = (
    *(0.12837917, -0.37612632, 0.11283688, -0.026858943, 0.0051999073, -0.000813003),
    8.316796e-05,
)
# -ln(1 - erf(x)) / x - 1 on 0.93 <= x <= 4; relative error of erf 6.8e-10.
ERF_LARGE = (
    *(0.12865369, 0.6351303, 0.10627165, -0.023791967, 0.0036565786, -0.00032627195),
    1.1577385e-05,
)
# (Phi(x) - 1/2) / x in powers of 2 (x / 5.3)^2 - 1 on |x| <= 5.3; error of Phi 2.1e-8.
_NORMAL_CDF = (
    *(0.13339256, -0.066518515, 0.049264185, -0.03958863, 0.032079004, -0.025301265),
    *(0.018930113, -0.013173233, 0.008812117, -0.0058737323, 0.0031647908, -0.0010733264),
    *(0.00070526247, -0.0007726114, 0.00029289297),
)

ACCURACY = {
    **{name: Accuracy(3) for name in ("exp", "exp2", "erf", "log")},
    **{name: Accuracy(5) for name in ("tanh", "sigmoid")},
    "rsqrt": Accuracy(3.2),
    "normal_cdf": Accuracy(0, absolute=3.4),
}
"""The errors of these functions, in units of 2**-24: of 1 ulp these are up to 2. Tested."""

_LOG2_E = 1.4426950408889634
# ln(2) in two parts: products of the first with an integer below 2^15 are exact.
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
# Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
_ROUNDER = 12582912.0
_ROUNDER_BITS = 0x4B400000
_SIGN_BIT = -0x80000000


def constant(like: Expr, value: float) -> Expr:
    """`value` as a float32 of as many lanes as `like`."""
    return _broadcast(tirx.const(value, "float32"), like)


def fma(a: Expr, b: Expr, c: Expr) -> Expr:
    """a * b + c, rounded once (every supported CPU has FMA)."""
    return tirx.call_llvm_pure_intrin(a.ty, "llvm.fma", a, b, c)


def exp(x: Expr) -> Expr:
    """e^x: 0 below -104, inf above 88.73, subnormal results included."""
    return _exp_of_clamped(_at_most(_at_least(x, -104.0), 89.0))


def exp2(x: Expr) -> Expr:
    """2^x: 0 below -150, inf from 128 on, subnormal results included."""
    x = hold(_at_most(_at_least(x, -151.0), 129.0))
    t = hold(_add_rounder(x, 1.0))
    return _scale(_exp2_fraction(x - _rounded(t)), _rounded_int(t))


def exp2_nonpositive(x: Expr) -> Expr:
    """2^x for x <= 0, cheaper than `exp2`: results below 2^-126 are 0. For softmax weights."""
    x = hold(x)
    # The low bits of t are the biased exponent itself: n + 127.
    t = hold(x + constant(x, _ROUNDER + 127.0))
    power = tirx.reinterpret(x.ty, _shift_left(tirx.reinterpret(_int_type(x), t), 23))
    value = _exp2_fraction(x - (t - constant(x, _ROUNDER + 127.0))) * power
    return tirx.Select(x < constant(x, -126.0), constant(x, 0.0), value)


def tanh(x: Expr) -> Expr:
    """Hyperbolic tangent: +-1 from about 9 on."""
    # With m = e^(2|x|) - 1: tanh |x| = m / (m + 2), free of cancellation.
    x = hold(x)
    m = hold(_expm1_nonnegative(_at_most(_abs(x), 9.5) * constant(x, 2.0)))
    return _with_sign_of(m / (m + constant(x, 2.0)), x)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x), with small relative error for very negative x too."""
    x = hold(x)
    e = hold(exp(constant(x, 0.0) - _abs(x)))
    one = constant(x, 1.0)
    return tirx.Select(x < constant(x, 0.0), e, one) / (one + e)


def erf(x: Expr) -> Expr:
    """The error function: +-1 from about 3.9 on."""
    x = hold(x)
    a = hold(_at_most(_abs(x), 4.0))
    small = fma(_polynomial(ERF_SMALL, hold(a * a)), a, a)
    large = fma(_polynomial(ERF_LARGE, a), a, a)
    large = constant(x, 1.0) - _exp_of_clamped(constant(x, 0.0) - large)
    return _with_sign_of(tirx.Select(a < constant(x, 0.93), small, large), x)


def normal_cdf(x: Expr) -> Expr:
    """Phi(x) = (1 + erf(x / sqrt(2))) / 2, within 2e-7, cheaper than by `erf`: 0 below -5.4."""
    x = hold(x)
    limit = 5.3
    square = _at_most(x * x, limit * limit)
    t = fma(square, constant(x, 2.0 / (limit * limit)), constant(x, -1.0))
    # Beyond the limit this goes on in a straight line, which soon leaves [-1/2, 1/2].
    odd = _at_least(_at_most(x * _polynomial(_NORMAL_CDF, hold(t)), 0.5), -0.5)
    return odd + constant(x, 0.5)


def log(x: Expr) -> Expr:
    """Natural logarithm: -inf at 0, NaN below."""
    x = hold(x)
    zero, infinity = constant(x, 0.0), constant(x, float("inf"))
    subnormal = x < constant(x, 2.0**-126)
    bits = tirx.reinterpret(_int_type(x), tirx.Select(subnormal, x * constant(x, 2.0**23), x))
    # x = 2^e (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2).
    half_root = _integer(x, 0x3F3504F3)  # the bits of sqrt(1/2)
    above = hold(bits - half_root)
    exponent = tirx.Cast(x.ty, tirx.shift_right(above, _integer(x, 23)))
    e = hold(exponent + tirx.Select(subnormal, constant(x, -23.0), zero))
    mantissa = tirx.bitwise_and(above, _integer(x, 0x7FFFFF)) + half_root
    f = hold(tirx.reinterpret(x.ty, mantissa) - constant(x, 1.0))
    square = hold(f * f)
    tail = fma(f * square, _polynomial(_LOG, f), e * constant(x, _LN2_LOW))
    tail = fma(constant(x, -0.5), square, tail)
    finite = fma(e, constant(x, _LN2_HIGH), f + tail)
    special = tirx.Select(x < zero, constant(x, float("nan")), x)  # keeps NaN and infinity
    special = tirx.Select(x == zero, constant(x, float("-inf")), special)
    return tirx.Select(tirx.And(x > zero, x < infinity), finite, special)


def rsqrt(x: Expr) -> Expr:
    """1 / sqrt(x): the machine's square root and division, each rounded correctly."""
    return constant(x, 1.0) / tirx.call_llvm_pure_intrin(x.ty, "llvm.sqrt", x)


# Parts of the above.


def _exp_of_clamped(x: Expr) -> Expr:
    """e^x = 2^n e^r for x in [-104, 89] (or NaN), n = round(x / ln 2)."""
    x = hold(x)
    t = hold(_add_rounder(x, _LOG2_E))
    r = hold(_minus_ln2_multiple(x, _rounded(t)))
    return _scale(fma(r * r, _polynomial(_EXP, r), r) + constant(x, 1.0), _rounded_int(t))


def _expm1_nonnegative(y: Expr) -> Expr:
    """e^y - 1 = 2^n (e^r - 1) + (2^n - 1) for y in [0, 80] (or NaN)."""
    y = hold(y)
    t = hold(_add_rounder(y, _LOG2_E))
    r = hold(_minus_ln2_multiple(y, _rounded(t)))
    power = hold(_power_of_two(y, _rounded_int(t)))
    return fma(power, fma(r * r, _polynomial(_EXPM1, r), r), power - constant(y, 1.0))


def _exp2_fraction(r: Expr) -> Expr:
    """2^r for |r| <= 1/2."""
    r = hold(r)
    return fma(_polynomial(_EXP2, r), r, constant(r, 1.0))


def _add_rounder(x: Expr, factor: float) -> Expr:
    """x * factor + 1.5 * 2^23, from which `_rounded` and `_rounded_int` read round(x * factor)."""
    return fma(x, constant(x, factor), constant(x, _ROUNDER))


def _rounded(t: Expr) -> Expr:
    return t - constant(t, _ROUNDER)


def _rounded_int(t: Expr) -> Expr:
    return tirx.reinterpret(_int_type(t), t) - _integer(t, _ROUNDER_BITS)


def _minus_ln2_multiple(x: Expr, n: Expr) -> Expr:
    """x - n ln 2."""
    n = hold(n)
    return fma(n, constant(x, -_LN2_LOW), fma(n, constant(x, -_LN2_HIGH), x))


def _scale(value: Expr, n: Expr) -> Expr:
    """value * 2^n in two steps, so that the result may be infinite or subnormal."""
    n = hold(n)
    half = hold(tirx.shift_right(n, _integer(n, 1)))
    return value * _power_of_two(value, half) * _power_of_two(value, n - half)


def _power_of_two(like: Expr, n: Expr) -> Expr:
    """2^n for integers n in [-126, 127]."""
    return tirx.reinterpret(like.ty, _shift_left(n + _integer(like, 127), 23))


def _shift_left(n: Expr, count: int) -> Expr:
    return tirx.shift_left(n, _integer(n, count))


def _polynomial(coefficients: Sequence[float], x: Expr) -> Expr:
    """c0 + c1 x + c2 x^2 + ... by Horner's rule."""
    result = constant(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, constant(x, c))
    return result


# A comparison with NaN is false, so these keep NaN, which `Max` and `Min` need not.


def _at_least(x: Expr, low: float) -> Expr:
    x = hold(x)
    return tirx.Select(x < constant(x, low), constant(x, low), x)


def _at_most(x: Expr, high: float) -> Expr:
    x = hold(x)
    return tirx.Select(x > constant(x, high), constant(x, high), x)


def _abs(x: Expr) -> Expr:
    bits = tirx.reinterpret(_int_type(x), x)
    return tirx.reinterpret(x.ty, tirx.bitwise_and(bits, _integer(x, ~_SIGN_BIT)))


def _with_sign_of(magnitude: Expr, x: Expr) -> Expr:
    sign = tirx.bitwise_and(tirx.reinterpret(_int_type(x), x), _integer(x, _SIGN_BIT))
    bits = tirx.reinterpret(_int_type(x), magnitude)
    return tirx.reinterpret(x.ty, tirx.bitwise_or(bits, sign))


def _integer(like: Expr, value: int) -> Expr:
    return _broadcast(tirx.const(value, "int32"), like)


def _int_type(x: Expr) -> str:
    lanes = lane_count(x)
    return "int32" if lanes == 1 else f"int32x{lanes}"


def _broadcast(scalar: Expr, like: Expr) -> Expr:
    lanes = lane_count(like)
    return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)


def lane_count(x: Expr) -> int:
    """How many lanes an expression has; 1 for a scalar."""
    return int(x.ty.dtype.lanes)
