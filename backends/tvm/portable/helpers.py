"""Functions that a language lacks, as its own text, by the names under which kernels call them.

The error function is that of the CPU's kernels (`vector_math`); sine, cosine and the hyperbolic
tangent are those of Cephes in single precision (S. Moshier, "Methods and Programs for Mathematical
Functions", 1989). WGSL's own sine and cosine promise 2^-11, and that only from -pi to pi. May
import: vector_math.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tfgraph.backends.tvm.cpu.vector_math import ERF_LARGE, ERF_SMALL


def _polynomial(coefficients: Sequence[float], x: str) -> str:
    """c0 + c1 x + c2 x^2 + ... by Horner's rule, as text that all three languages read."""
    result = _literal(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = f"({result} * {x} + {_literal(c)})"
    return result


def _literal(value: float) -> str:
    return np.format_float_positional(np.float32(value), trim="0") + "f"


_INTEGERS = """\
// a / b, rounded down.
{int} floor_div({int} a, {int} b) {{
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}}"""
_REMAINDER = """\
// What is left of a by floor_div.
{int} floor_mod({int} a, {int} b) {{
  return a - floor_div(a, b) * b;
}}"""

OPENCL_HELPERS: Mapping[str, str] = MappingProxyType(
    {"floor_mod": _REMAINDER.format(int="long"), "floor_div": _INTEGERS.format(int="long")}
)

_METAL_ERF = f"""\
// The error function, within 3 units of the last place.
float error_function(float x) {{
  const float a = min(abs(x), 4.0f);
  const float square = a * a;
  const float small = a + a * {_polynomial(ERF_SMALL, "square")};
  const float large = a + a * {_polynomial(ERF_LARGE, "a")};
  const float magnitude = a < 0.93f ? small : 1.0f - precise::exp(-large);
  return isnan(x) ? x : copysign(magnitude, x);
}}"""

METAL_HELPERS: Mapping[str, str] = MappingProxyType(
    {**OPENCL_HELPERS, "error_function": _METAL_ERF}
)

_WGSL_DIV = """\
// a / b, rounded down.
fn floor_div(a: i32, b: i32) -> i32 {
  return a / b - select(0, 1, a % b != 0 && (a < 0) != (b < 0));
}"""
_WGSL_MOD = """\
// What is left of a by floor_div.
fn floor_mod(a: i32, b: i32) -> i32 {
  return a - floor_div(a, b) * b;
}"""
_IS_NAN = """\
// By the bits: a compiler may take for granted that there is no NaN.
fn is_nan(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}"""
_ERF = f"""\
// The error function, within 3 units of the last place and those of exp.
fn error_function(x: f32) -> f32 {{
  let a = min(abs(x), 4.0f);
  let square = a * a;
  let small = a + a * {_polynomial(ERF_SMALL, "square")};
  let large = a + a * {_polynomial(ERF_LARGE, "a")};
  return sign(x) * select(1.0f - exp(-large), small, a < 0.93f);
}}"""
_TANH = f"""\
// The hyperbolic tangent (Cephes); WGSL's own loses its digits near 0.
fn hyperbolic_tangent(x: f32) -> f32 {{
  let a = min(abs(x), 9.5f);
  let z = x * x;
  let small = x + x * z * {
    _polynomial(
        (
            -3.33332819422e-1,
            1.33314422036e-1,
            -5.37397155531e-2,
            2.06390887954e-2,
            -5.70498872745e-3,
        ),
        "z",
    )
};
  let large = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
  return select(sign(x) * large, small, a < 0.625f);
}}"""
_QUADRANT = f"""\
// The sine of x + quarters * pi / 2 for |x| below 8192 (Cephes, after Cody and Waite).
fn sine_from(x: f32, quarters: i32) -> f32 {{
  let n = round(x * 0.63661975f);
  let r = ((x - n * 1.5703125f) - n * 0.00048375129f) - n * 7.54979e-8f;
  let z = r * r;
  let sine = r + r * z * {_polynomial((-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4), "z")};
  let cosine = 1.0f - 0.5f * z + z * z * {
    _polynomial((4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5), "z")
};
  let quadrant = (i32(n) + quarters) & 3;
  let magnitude = select(sine, cosine, (quadrant & 1) == 1);
  return select(magnitude, -magnitude, quadrant >= 2);
}}"""
_SINE = """\
fn sine(x: f32) -> f32 {
  return sine_from(x, 0);
}"""
_COSINE = """\
fn cosine(x: f32) -> f32 {
  return sine_from(x, 1);
}"""
_POWER = """\
// x^y, of negative x too where y is an integer.
fn power(x: f32, y: f32) -> f32 {
  let magnitude = pow(abs(x), y);
  let odd = floor(y) == y && floor(y * 0.5f) != y * 0.5f;
  return select(magnitude, -magnitude, odd && x < 0.0f);
}"""

# A function stands before those that it calls: whoever takes what is used goes through once.
WGSL_HELPERS: Mapping[str, str] = MappingProxyType(
    {
        "floor_mod": _WGSL_MOD,
        "floor_div": _WGSL_DIV,
        "is_nan": _IS_NAN,
        "error_function": _ERF,
        "hyperbolic_tangent": _TANH,
        "sine": _SINE,
        "cosine": _COSINE,
        "sine_from": _QUADRANT,
        "power": _POWER,
    }
)


def used(helpers: Mapping[str, str], text: str) -> list[str]:
    """The functions that the text calls, and those that they call, in an order in which each stands
    behind what it calls."""
    found: list[str] = []
    for name, body in helpers.items():
        if f"{name}(" in "\n".join([text, *found]):
            found.append(body)
    return found[::-1]
