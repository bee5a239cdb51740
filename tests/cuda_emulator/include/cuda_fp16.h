// float16, as far as kernels use it.
#pragma once

#include "small_floats.h"

using __half = cuda_emulator::Small<cuda_emulator::HalfFormat>;
using half = __half;
using __half2 = cuda_emulator::Small2<cuda_emulator::HalfFormat>;
using half2 = __half2;

__forceinline__ float __half2float(__half x) { return x; }
__forceinline__ __half __float2half(float x) { return x; }
__forceinline__ __half __float2half_rn(float x) { return x; }
__forceinline__ __half2 __float2half2_rn(float x) { return {x, x}; }
__forceinline__ __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
__forceinline__ __half2 __float22half2_rn(float2 x) { return {x.x, x.y}; }
__forceinline__ float2 __half22float2(__half2 x) { return {x.x, x.y}; }
__forceinline__ __half2 __halves2half2(__half x, __half y) { return {x, y}; }
__forceinline__ __half2 __half2half2(__half x) { return {x, x}; }
__forceinline__ __half2 make_half2(__half x, __half y) { return {x, y}; }
__forceinline__ __half __low2half(__half2 x) { return x.x; }
__forceinline__ __half __high2half(__half2 x) { return x.y; }
__forceinline__ unsigned short __half_as_ushort(__half x) { return x.bits; }
__forceinline__ __half __ushort_as_half(unsigned short bits) { return __half::of_bits(bits); }
