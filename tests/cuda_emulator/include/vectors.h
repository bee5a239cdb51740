// CUDA's vector types. Each is copied as one access of its whole size, as the GPU's instruction is,
// which g++ would otherwise split: so the emulator sees whether it is aligned.
#pragma once

namespace cuda_emulator {
template <size_t bytes>
struct Whole;
template <>
struct Whole<2> {
  typedef uint16_t type __attribute__((may_alias));
};
template <>
struct Whole<4> {
  typedef uint32_t type __attribute__((may_alias));
};
template <>
struct Whole<8> {
  typedef uint64_t type __attribute__((may_alias));
};
template <>
struct Whole<16> {
  typedef uint64_t type __attribute__((vector_size(16), may_alias));
};
}  // namespace cuda_emulator

// Within a struct whose size is known at its end: copies of it as one word.
#define CUDA_EMULATOR_COPIED_WHOLE(Type, bytes)                                       \
  using Whole = cuda_emulator::Whole<bytes>::type;                                    \
  __forceinline__ Type(const Type& other) {                                           \
    *reinterpret_cast<Whole*>(this) = *reinterpret_cast<const Whole*>(&other);        \
  }                                                                                   \
  __forceinline__ Type& operator=(const Type& other) {                                \
    *reinterpret_cast<Whole*>(this) = *reinterpret_cast<const Whole*>(&other);        \
    return *this;                                                                     \
  }

#define CUDA_EMULATOR_VECTOR2(Type, T)                                                \
  struct alignas(2 * sizeof(T)) Type {                                                \
    T x, y;                                                                           \
    Type() = default;                                                                 \
    Type(T x, T y) : x(x), y(y) {}                                                    \
    CUDA_EMULATOR_COPIED_WHOLE(Type, 2 * sizeof(T))                                   \
  };                                                                                  \
  inline Type make_##Type(T x, T y) { return Type(x, y); }
#define CUDA_EMULATOR_VECTOR4(Type, T)                                                \
  struct alignas(4 * sizeof(T)) Type {                                                \
    T x, y, z, w;                                                                     \
    Type() = default;                                                                 \
    Type(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}                              \
    CUDA_EMULATOR_COPIED_WHOLE(Type, 4 * sizeof(T))                                   \
  };                                                                                  \
  inline Type make_##Type(T x, T y, T z, T w) { return Type(x, y, z, w); }

CUDA_EMULATOR_VECTOR2(float2, float)
CUDA_EMULATOR_VECTOR4(float4, float)
CUDA_EMULATOR_VECTOR2(double2, double)
CUDA_EMULATOR_VECTOR2(int2, int)
CUDA_EMULATOR_VECTOR4(int4, int)
CUDA_EMULATOR_VECTOR2(uint2, unsigned)
CUDA_EMULATOR_VECTOR4(uint4, unsigned)
CUDA_EMULATOR_VECTOR2(longlong2, long long)
CUDA_EMULATOR_VECTOR2(ulonglong2, unsigned long long)
CUDA_EMULATOR_VECTOR2(short2, short)
CUDA_EMULATOR_VECTOR4(short4, short)
CUDA_EMULATOR_VECTOR2(ushort2, unsigned short)
CUDA_EMULATOR_VECTOR4(ushort4, unsigned short)
CUDA_EMULATOR_VECTOR2(char2, signed char)
CUDA_EMULATOR_VECTOR4(char4, signed char)
CUDA_EMULATOR_VECTOR2(uchar2, unsigned char)
CUDA_EMULATOR_VECTOR4(uchar4, unsigned char)
