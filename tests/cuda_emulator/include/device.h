// What CUDA C takes for granted, for g++: this stands before each kernel's source. The rest of the
// emulator is `runtime/`, built once; here are declarations, and what has to be inline so that the
// accesses to memory are those of the kernel.
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <utility>

#define __CUDA_ARCH__ 800
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace cuda_emulator {

constexpr int kWarp = 32;

// Whether accesses are checked; the kernels' source is built with a definition of it.
extern const bool checked;

struct Index {
  unsigned x, y, z;
};

// Of the thread that runs.
extern Index thread_index, block_index, block_size, grid_size;

// Where a __shared__ variable lies. `alignment` is what its declaration promises, and no more is
// given: an address is never aligned by chance.
void* shared_variable(size_t bytes, size_t alignment, size_t element, const char* name, int line);
void* dynamic_shared_variable(size_t alignment, size_t element, const char* name);

template <typename T>
T& shared(size_t alignment, const char* name, int line) {
  using Element = std::remove_all_extents_t<T>;
  const size_t own = alignof(Element);
  return *static_cast<T*>(shared_variable(sizeof(T), alignment > own ? alignment : own,
                                          sizeof(Element), name, line));
}

template <typename T>
T* dynamic_shared(size_t alignment, const char* name) {
  const size_t own = alignof(T);
  return static_cast<T*>(
      dynamic_shared_variable(alignment > own ? alignment : own, sizeof(T), name));
}

void block_barrier();
void warp_barrier(unsigned mask);
void memory_fence();

// Whether the step of this number is to run; `CudaOnCpu.without_each` puts the question before each.
bool kept(int step) __attribute__((const));

enum class From { lane, up, down, exclusive_or };
void shuffle(unsigned mask, void* value, unsigned bytes, From from, int by, int width);
unsigned ballot(unsigned mask, bool vote);

// Replaces the number of up to 8 bytes at `address` by operation(old, operand); returns the old.
uint64_t atomic(void* address, unsigned bytes, uint64_t (*operation)(uint64_t, uint64_t),
                uint64_t operand);

int run_grid(const char* name, const unsigned* grid, const unsigned* block, unsigned dynamic_shared,
             void (*body)(void*), void* self);

// A kernel and its arguments, as cuLaunchKernel takes them: pointers to each.
template <typename... Types>
struct Launch {
  void (*kernel)(Types...);
  void** arguments;

  template <size_t... at>
  __attribute__((no_sanitize("thread"))) void call(std::index_sequence<at...>) {
    kernel(*static_cast<Types*>(arguments[at])...);
  }

  __attribute__((no_sanitize("thread"))) static void body(void* self) {
    static_cast<Launch*>(self)->call(std::index_sequence_for<Types...>());
  }
};

template <typename... Types>
__attribute__((no_sanitize("thread"))) int launch(void (*kernel)(Types...), const char* name, const unsigned* grid, const unsigned* block,
           unsigned dynamic_shared, void** arguments) {
  Launch<Types...> self{kernel, arguments};
  return run_grid(name, grid, block, dynamic_shared, Launch<Types...>::body, &self);
}

}  // namespace cuda_emulator

#define threadIdx cuda_emulator::thread_index
#define blockIdx cuda_emulator::block_index
#define blockDim cuda_emulator::block_size
#define gridDim cuda_emulator::grid_size
#define warpSize cuda_emulator::kWarp

__forceinline__ void __syncthreads() { cuda_emulator::block_barrier(); }
__forceinline__ void __syncwarp(unsigned mask = 0xffffffff) { cuda_emulator::warp_barrier(mask); }
__forceinline__ void __threadfence() { cuda_emulator::memory_fence(); }
__forceinline__ void __threadfence_block() { cuda_emulator::memory_fence(); }

template <typename T>
__forceinline__ T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32) {
  cuda_emulator::shuffle(mask, &value, sizeof(T), cuda_emulator::From::exclusive_or, by, width);
  return value;
}
template <typename T>
__forceinline__ T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  cuda_emulator::shuffle(mask, &value, sizeof(T), cuda_emulator::From::lane, lane, width);
  return value;
}
template <typename T>
__forceinline__ T __shfl_up_sync(unsigned mask, T value, int by, int width = 32) {
  cuda_emulator::shuffle(mask, &value, sizeof(T), cuda_emulator::From::up, by, width);
  return value;
}
template <typename T>
__forceinline__ T __shfl_down_sync(unsigned mask, T value, int by, int width = 32) {
  cuda_emulator::shuffle(mask, &value, sizeof(T), cuda_emulator::From::down, by, width);
  return value;
}
__forceinline__ unsigned __ballot_sync(unsigned mask, int vote) {
  return cuda_emulator::ballot(mask, vote != 0);
}
__forceinline__ int __any_sync(unsigned mask, int vote) {
  return cuda_emulator::ballot(mask, vote != 0) != 0;
}
__forceinline__ int __all_sync(unsigned mask, int vote) {
  return cuda_emulator::ballot(mask, vote == 0) == 0;
}

// Atomics. Numbers travel as bits in 64.
namespace cuda_emulator {
template <typename T>
__forceinline__ uint64_t bits_of(T value) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <typename T>
__forceinline__ T from_bits(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}
}  // namespace cuda_emulator
#define CUDA_EMULATOR_ATOMIC(function, expression)                                       \
  template <typename T>                                                                  \
  __forceinline__ T function(T* address, std::common_type_t<T> operand) {                \
    return cuda_emulator::from_bits<T>(cuda_emulator::atomic(                            \
        address, sizeof(T),                                                              \
        [](uint64_t old_bits, uint64_t given_bits) {                                     \
          const T old = cuda_emulator::from_bits<T>(old_bits);                           \
          const T given = cuda_emulator::from_bits<T>(given_bits);                       \
          return cuda_emulator::bits_of<T>(expression);                                  \
        },                                                                               \
        cuda_emulator::bits_of<T>(operand)));                                            \
  }
CUDA_EMULATOR_ATOMIC(atomicAdd, old + given)
CUDA_EMULATOR_ATOMIC(atomicSub, old - given)
CUDA_EMULATOR_ATOMIC(atomicMax, old < given ? given : old)
CUDA_EMULATOR_ATOMIC(atomicMin, given < old ? given : old)
CUDA_EMULATOR_ATOMIC(atomicExch, given)
CUDA_EMULATOR_ATOMIC(atomicOr, old | given)
CUDA_EMULATOR_ATOMIC(atomicAnd, old & given)
CUDA_EMULATOR_ATOMIC(atomicInc, old >= given ? T(0) : T(old + 1))
#undef CUDA_EMULATOR_ATOMIC

// Arithmetic, as in CUDA: of a number and NaN the number is the larger and the smaller.
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
#define CUDA_EMULATOR_ORDER(T)                           \
  inline T max(T a, T b) { return a > b ? a : b; }       \
  inline T min(T a, T b) { return a < b ? a : b; }
CUDA_EMULATOR_ORDER(int)
CUDA_EMULATOR_ORDER(unsigned)
CUDA_EMULATOR_ORDER(long)
CUDA_EMULATOR_ORDER(unsigned long)
CUDA_EMULATOR_ORDER(long long)
CUDA_EMULATOR_ORDER(unsigned long long)
#undef CUDA_EMULATOR_ORDER
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
__forceinline__ unsigned __float_as_uint(float x) { return cuda_emulator::bits_of(x); }
__forceinline__ int __float_as_int(float x) { return static_cast<int>(cuda_emulator::bits_of(x)); }
__forceinline__ float __uint_as_float(unsigned x) { return cuda_emulator::from_bits<float>(x); }
__forceinline__ float __int_as_float(int x) {
  return cuda_emulator::from_bits<float>(static_cast<unsigned>(x));
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
template <typename T>
__forceinline__ T __ldg(const T* address) {
  return *address;
}
inline size_t __cvta_generic_to_shared(const void* address) {
  return reinterpret_cast<size_t>(address);
}

#include "tensor_cores.h"
#include "vectors.h"
