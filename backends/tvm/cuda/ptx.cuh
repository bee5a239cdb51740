// The instructions of tensor cores and of asynchronous copies, a function each; kernels are written
// in these words. The layouts of fragments are those of the PTX ISA, sections "Matrix fragments for
// mma.m16n8k16" and "ldmatrix". Where an architecture lacks an instruction, the function does the
// same in others.
#define DEVICE __device__ __forceinline__

// Where a shared address lies within the block's shared memory, as instructions want it.
DEVICE unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// Copies `bytes`, up to 16 of whole 16-bit numbers, and fills up to 16 with zeros; `to` is aligned to
// 16, `from` to 2.
DEVICE void copy_16_16(void* to, const void* from, int bytes) {
  for (int i = 0; i < 8; ++i)
    static_cast<unsigned short*>(to)[i] =
        2 * i < bytes ? static_cast<const unsigned short*>(from)[i] : static_cast<unsigned short>(0);
}

// The same of 32-bit numbers.
DEVICE void copy_16_32(void* to, const void* from, int bytes) {
  for (int i = 0; i < 4; ++i)
    static_cast<unsigned*>(to)[i] = 4 * i < bytes ? static_cast<const unsigned*>(from)[i] : 0u;
}

// Copies `bytes`, 16 or fewer, and fills up to 16 with zeros; both ends are aligned to 16. The bytes
// do not pass through registers: they have arrived for the thread that asked after `cp_async_wait`,
// for the others after a barrier behind that.
DEVICE void cp_async_16(void* shared, const void* global, int bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes)
               : "memory");
#else
  copy_16_32(shared, global, bytes);
#endif
}

// Ends a group of the copies asked for since the last group.
DEVICE void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for this thread's groups, all but the latest `left`.
template <int left>
DEVICE void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
#endif
}

// Four 8 x 8 matrices of 16-bit numbers: lane 8 i + r gives the address of row r of matrix i, and
// gets of each the two neighbours at row lane / 4, columns 2 (lane % 4) and the next.
DEVICE void ldmatrix_x4(unsigned* to, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// The same of the transposed matrices.
DEVICE void ldmatrix_x4_trans(unsigned* to, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// c (16 x 8, float32) += a (16 x 16) b (16 x 8), both float16.
DEVICE void mma_f16(float* c, const unsigned* a, const unsigned* b) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  for (int half = 0; half < 2; ++half)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#endif
}

// The same, both bfloat16. From sm_80 on.
DEVICE void mma_bf16(float* c, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same of float32 numbers that are read as tf32: c (16 x 8) += a (16 x 8) b (8 x 8). From sm_80.
DEVICE void mma_tf32(float* c, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Two float32 numbers, each rounded to nearest even, the first in the lower half.
DEVICE unsigned pack_f16(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return reinterpret_cast<const unsigned&>(both);
}

DEVICE unsigned pack_bf16(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const unsigned&>(both);
}

// Two neighbours in memory, at an address aligned to both, rounded likewise.
DEVICE void store_pair_f16(half* to, float low, float high) {
  *reinterpret_cast<unsigned*>(to) = pack_f16(low, high);
}

DEVICE void store_pair_f32(float* to, float low, float high) {
  *reinterpret_cast<float2*>(to) = make_float2(low, high);
}

DEVICE void store_pair_bf16(__nv_bfloat16* to, float low, float high) {
  *reinterpret_cast<unsigned*>(to) = pack_bf16(low, high);
}

// Sixteen bytes of memory, at an address aligned to 16, as float32.
DEVICE void load_16_f32(float* to, const float* from) {
  const float4 read = *reinterpret_cast<const float4*>(from);
  to[0] = read.x, to[1] = read.y, to[2] = read.z, to[3] = read.w;
}

DEVICE void load_16_f16(float* to, const half* from) {
  const uint4 read = *reinterpret_cast<const uint4*>(from);
  for (int i = 0; i < 8; ++i) to[i] = __half2float(reinterpret_cast<const half*>(&read)[i]);
}

DEVICE void load_16_bf16(float* to, const __nv_bfloat16* from) {
  const uint4 read = *reinterpret_cast<const uint4*>(from);
  for (int i = 0; i < 8; ++i)
    to[i] = __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(&read)[i]);
}

// Sixteen bytes from memory to memory, both aligned to 16.
DEVICE void copy_16(void* to, const void* from) {
  *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
}

// The reverse of `load_16`: float32 numbers, each rounded to nearest even, to sixteen bytes.
DEVICE void store_16_f32(float* to, const float* from) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
}

DEVICE void store_16_f16(half* to, const float* from) {
  *reinterpret_cast<uint4*>(to) = make_uint4(pack_f16(from[0], from[1]), pack_f16(from[2], from[3]),
                                             pack_f16(from[4], from[5]), pack_f16(from[6], from[7]));
}

DEVICE void store_16_bf16(__nv_bfloat16* to, const float* from) {
  *reinterpret_cast<uint4*>(to) = make_uint4(pack_bf16(from[0], from[1]), pack_bf16(from[2], from[3]),
                                             pack_bf16(from[4], from[5]), pack_bf16(from[6], from[7]));
}

// float32 rounded to tf32's 10 bits, ties away from zero.
DEVICE unsigned to_tf32(float x) {
  unsigned y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

DEVICE void round_to_tf32(unsigned* x) {
  *x = to_tf32(__uint_as_float(*x));
}

// 2^x, within a relative error of 2^-22; results below 2^-126 are 0.
DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Formats of two 16-bit numbers in a word, by the bits of an exponent, which tell all that differs.
enum Format : unsigned { F16 = 0x7c00u, BF16 = 0x7f80u };
// Of two numbers, the sign bits of those that are infinite or NaN: their exponents overflow.
template <unsigned exponent>
DEVICE unsigned infinite(unsigned x) {
  const unsigned least = exponent & (0u - exponent);
  return ((x & (exponent * 0x10001u)) + least * 0x10001u) & 0x80008000u;
}

// Whether any of `count` rows of `chunks` times eight numbers in shared memory, `pitch` numbers apart,
// is infinite or NaN; the lanes of a warp share the reading.
template <unsigned exponent>
DEVICE int any_infinite(const void* rows, int lane, int count, int chunks, int pitch) {
  unsigned found = 0;
#pragma unroll 2
  for (int i = lane; i < count * chunks; i += 32) {
    const int at = i / chunks * pitch + i % chunks * 8;
    const uint4 read = *reinterpret_cast<const uint4*>(static_cast<const unsigned short*>(rows) + at);
    found |= infinite<exponent>(read.x) | infinite<exponent>(read.y);
    found |= infinite<exponent>(read.z) | infinite<exponent>(read.w);
  }
  return __any_sync(0xffffffffu, found != 0);
}

// Zeros in place of those of the eight numbers of a fragment that are infinite or NaN.
template <unsigned exponent>
DEVICE void keep_finite(unsigned* x) {
  for (int i = 0; i < 4; ++i) x[i] &= ~((infinite<exponent>(x[i]) >> 15) * 0xffffu);
}

// Of two numbers, those that are NaN, or infinite with this sign bit, as 1 each, the others as 0.
template <unsigned exponent>
DEVICE unsigned marked(unsigned x, unsigned sign) {
  const unsigned fraction = ~exponent & 0x7fffu, one = exponent & (exponent >> 1);
  unsigned found = 0;
  for (int at = 0; at < 32; at += 16) {
    const unsigned number = x >> at;
    if (((infinite<exponent>(x) >> at) & 0x8000u) && ((number & fraction) || (number & 0x8000u) == sign))
      found |= one << at;
  }
  return found;
}

// What infinite numbers and NaN in b (16 x 8) do to the sums of the rows that see them: a (16 x 16)
// is 1 where a row does, else 0. Bit i of the result: +infinity is added to sum i of this lane, bit
// 4 + i: -infinity is. NaN counts as both. `mma` is that of the format.
template <unsigned exponent, void (*mma)(float*, const unsigned*, const unsigned*)>
DEVICE unsigned infinite_sums(const unsigned* a, const unsigned* b) {
  unsigned up[2], down[2], found = 0;
  for (int i = 0; i < 2; ++i) {
    up[i] = marked<exponent>(b[i], 0u);
    down[i] = marked<exponent>(b[i], 0x8000u);
  }
  float ups[4] = {0, 0, 0, 0}, downs[4] = {0, 0, 0, 0};
  mma(ups, a, up);
  mma(downs, a, down);
  for (int i = 0; i < 4; ++i) found |= (ups[i] > 0) << i | (downs[i] > 0) << (4 + i);
  return found;
}

// A sum after what bits 0 and 4 of `marks` say; see `infinite_sums`.
DEVICE float spoilt(float sum, int marks) {
  if (marks & 1) sum += __int_as_float(0x7f800000);
  if (marks & 16) sum -= __int_as_float(0x7f800000);
  return sum;
}

// The same number, but the compiler does not know that: what depends on it is not computed ahead.
DEVICE int again(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
