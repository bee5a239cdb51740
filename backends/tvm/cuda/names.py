"""Names of sizes in CUDA C: a symbol of a graph may be any identifier of Python, `threadIdx` too.

A name that C++, CUDA or the kernels use gets `size_` in front, other letters than ASCII are spelt
out by their code. May import: tvm, prelude.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import tirx

from tfgraph.backends.tvm.cuda.prelude import prelude_names

_WORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export
    extern false final float for friend goto if import inline int long module mutable namespace new
    noexcept not not_eq nullptr operator or or_eq override private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast
    struct switch template this thread_local throw true try typedef typeid typename union unsigned
    using virtual void volatile wchar_t while xor xor_eq
    blockDim blockIdx gridDim threadIdx warpSize clock clock64 assert printf malloc free memcpy
    memset std cuda nvcuda main linux unix half nv_bfloat16 nv_bfloat162 half2 dim3 cudaError_t
    min max abs labs llabs size_t ptrdiff_t uint uchar ushort ulong NULL NAN INFINITY EOF errno
    signbit isnan isinf isfinite fma fdim fmax fmin fmod fabs div ldiv rand exit
    """.split()  # noqa: SIM905
)
# Functions of <math.h>, their forms for float and CUDA's own; types such as float4 and int64_t.
_MATH = re.compile(
    r"(a?(sin|cos|tan)h?(pi)?|sincos|atan2|exp(2|10|m1)?|log(2|10|1p|b)?|pow|r?sqrt|r?cbrt|hypot"
    r"|erfc?x?(inv)?|[tl]gamma|ceil|floor|trunc|l?l?round|l?l?rint|nearbyint|remainder|remquo"
    r"|copysign|nan|nextafter|scalbl?n|ldexp|frexp|modf|ilogb|j[01n]|y[01n]|norm(3d|4d|cdf)?"
    r"|fma|fdim|fmax|fmin|fmod|fabs|saturate)[fl]?"
    r"|u?(char|short|int|long|longlong)[1-4]|(float|double)[1-4]|u?int(_fast|_least)?\d+(_t)?"
    r"|u?int(max|ptr)_t|(float|bfloat|fp|e\dm)\w*\d|[A-Z]+_(MAX|MIN)|atomic\w*|tvm\w*|cu[A-Z]\w*"
)


def plain_name(name: str) -> str:
    """The name of a symbol as CUDA C may use it."""
    spelt = "".join(c if c.isascii() else f"u{ord(c):x}" for c in name)
    taken = spelt in _WORDS or spelt in prelude_names() or _MATH.fullmatch(spelt)
    if name.startswith("_") or "__" in name or taken:
        return f"size_{spelt.strip('_')}"
    return spelt


def with_plain_names(function: Any, plain: Callable[[str], str] = plain_name) -> Any:
    """A device function whose scalar parameters bear plain names, all different."""
    taken = {str(p.name) for p in function.params}
    new: dict[Any, Any] = {}
    for parameter in function.params:
        name = str(parameter.name)
        if plain(name) == name or str(parameter.ty) not in ("T.int64", "int64"):
            continue
        free = plain(name)
        while free in taken:
            free += "_"
        taken.add(free)
        new[parameter] = tirx.Var(free, parameter.ty)
    if not new:
        return function
    return tvm_ffi.structural_map(function, (tirx.Var, lambda v: new.get(v, v)))
