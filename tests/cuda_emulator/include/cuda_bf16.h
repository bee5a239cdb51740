// bfloat16, as far as kernels use it.
#pragma once

#include "small_floats.h"

using __nv_bfloat16 = cuda_emulator::Small<cuda_emulator::BfloatFormat>;
using nv_bfloat16 = __nv_bfloat16;
using __nv_bfloat162 = cuda_emulator::Small2<cuda_emulator::BfloatFormat>;
using nv_bfloat162 = __nv_bfloat162;

__forceinline__ float __bfloat162float(__nv_bfloat16 x) { return x; }
__forceinline__ __nv_bfloat16 __float2bfloat16(float x) { return x; }
__forceinline__ __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
__forceinline__ __nv_bfloat162 __float2bfloat162_rn(float x) { return {x, x}; }
__forceinline__ __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
__forceinline__ __nv_bfloat162 __float22bfloat162_rn(float2 x) { return {x.x, x.y}; }
__forceinline__ float2 __bfloat1622float2(__nv_bfloat162 x) { return {x.x, x.y}; }
__forceinline__ __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
__forceinline__ __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
__forceinline__ __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) { return x.x; }
__forceinline__ __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) { return x.y; }
__forceinline__ unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
__forceinline__ __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return __nv_bfloat16::of_bits(bits);
}
