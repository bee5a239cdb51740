// The words of the prelude that hold assembly: the same functions for the emulator. The layouts of
// fragments are those of the PTX ISA, sections "Matrix fragments for mma.m16n8k16 with
// floating-point type", "... mma.m16n8k8" and "ldmatrix".
#pragma once

namespace cuda_emulator {

enum class Number { f16, bf16, tf32 };

// c (16 x 8, float32) += a (16 x k) b (k x 8), by all lanes of a warp; k is 16, of tf32 8. The sum
// drops bits, no fewer than tensor cores do.
void mma(Number number, float* c, const unsigned* a, const unsigned* b);

// `count` 8 x 8 matrices of 16-bit numbers, by all lanes of a warp.
void ldmatrix(unsigned* to, const void* row, int count, bool transposed);

// `bytes` of `size`, and zeros behind.
void cp_async(void* shared, const void* global, unsigned size, unsigned bytes);
void cp_async_commit();
void cp_async_wait(int left);

}  // namespace cuda_emulator

__forceinline__ void cp_async_16(void* shared, const void* global, int bytes) {
  cuda_emulator::cp_async(shared, global, 16, bytes);
}
__forceinline__ void cp_async_8(void* shared, const void* global, int bytes) {
  cuda_emulator::cp_async(shared, global, 8, bytes);
}
__forceinline__ void cp_async_4(void* shared, const void* global, int bytes) {
  cuda_emulator::cp_async(shared, global, 4, bytes);
}
__forceinline__ void cp_async_commit() { cuda_emulator::cp_async_commit(); }
template <int left>
__forceinline__ void cp_async_wait() {
  cuda_emulator::cp_async_wait(left);
}
__forceinline__ void ldmatrix_x4(unsigned* to, const void* row) {
  cuda_emulator::ldmatrix(to, row, 4, false);
}
__forceinline__ void ldmatrix_x4_trans(unsigned* to, const void* row) {
  cuda_emulator::ldmatrix(to, row, 4, true);
}
__forceinline__ void ldmatrix_x2(unsigned* to, const void* row) {
  cuda_emulator::ldmatrix(to, row, 2, false);
}
__forceinline__ void ldmatrix_x2_trans(unsigned* to, const void* row) {
  cuda_emulator::ldmatrix(to, row, 2, true);
}
__forceinline__ void mma_f16(float* c, const unsigned* a, const unsigned* b) {
  cuda_emulator::mma(cuda_emulator::Number::f16, c, a, b);
}
__forceinline__ void mma_bf16(float* c, const unsigned* a, const unsigned* b) {
  cuda_emulator::mma(cuda_emulator::Number::bf16, c, a, b);
}
__forceinline__ void mma_tf32(float* c, const unsigned* a, const unsigned* b) {
  cuda_emulator::mma(cuda_emulator::Number::tf32, c, a, b);
}
// float32 rounded to tf32's 10 bits, ties away from zero; NaN and infinities as they are.
__forceinline__ unsigned to_tf32(float x) {
  const unsigned bits = __float_as_uint(x);
  return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & 0xffffe000;
}
// 2^x; results below 2^-126 are 0.
__forceinline__ float exp2_approx(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}
__forceinline__ int again(int x) { return x; }
