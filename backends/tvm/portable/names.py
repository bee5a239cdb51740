"""Names of sizes that OpenCL C, Metal and WGSL have no other use for. May import: cuda.names."""

from __future__ import annotations

from tfgraph.backends.tvm.cuda.names import plain_name

# Keywords, reserved words and types of the three languages besides those of C++, and what heads of
# kernels name themselves.
_WORDS = frozenset(
    """
    kernel global local constant generic pipe image1d_t image2d_t image3d_t sampler_t event_t
    read_only write_only read_write bool2 vec_step uniform ushort size_t uintptr_t intptr_t
    device threadgroup thread vertex fragment metal sampler texture2d access precise fast visible
    array atomic alias const_assert continuing diagnostic discard enable fn let loop ptr requires
    storage function workgroup var while override f16 f32 i32 u32 vec2 vec3 vec4 mat2x2 mat3x3
    mat4x4 select bitcast abs sign step mix clamp dot cross length normalize distance determinant
    transpose all any round fract degrees radians arrayLength pack unpack
    NULL Self abstract active alignas as async attribute await become cast coherent column_major
    common compile compile_fragment crate debugger decltype demote demote_to_helper do
    dynamic_cast external extends fallthrough filter final finally from fxgroup get groupshared
    highp impl implements import in instanceof interface invariant layout lowp macro macro_rules
    match mediump meta mod move mut new nil noinline nointerpolation non_coherent noncoherent
    noperspective null of package packoffset pass patch pixelfragment precision premerge priv pub
    readonly ref regardless resource restrict row_major self set shared smooth snorm std subroutine
    super target texture trait type unless unorm unsafe use varying where with writeonly yield
    group groups thread_index floor_div floor_mod is_nan error_function hyperbolic_tangent sine
    cosine sine_from power
    """.split()  # noqa: SIM905
)


def portable_name(name: str) -> str:
    """The name of a symbol as all three languages may use it."""
    return f"size_{name}" if name in _WORDS else plain_name(name)
