// Conversions and arithmetic of 16-bit floats, an element a thread.

extern "C" __global__ void half_both_ways(float* wide, unsigned short* narrow,
                                          const unsigned short* bits, const float* x, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    wide[i] = __half2float(__ushort_as_half(bits[i]));
    narrow[i] = __half_as_ushort(__float2half_rn(x[i]));
  }
}

extern "C" __global__ void bfloat_both_ways(float* wide, unsigned short* narrow,
                                            const unsigned short* bits, const float* x, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    wide[i] = __bfloat162float(__ushort_as_bfloat16(bits[i]));
    narrow[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
  }
}

template <typename T>
__device__ void arithmetic(T* sums, T* products, T* quotients, unsigned char* less, const T* x,
                           const T* y, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    sums[i] = x[i] + y[i];
    products[i] = __hmul(x[i], y[i]);
    quotients[i] = x[i] / y[i];
    less[i] = x[i] < y[i];
  }
}

extern "C" __global__ void half_arithmetic(half* sums, half* products, half* quotients,
                                           unsigned char* less, const half* x, const half* y,
                                           int count) {
  arithmetic(sums, products, quotients, less, x, y, count);
}

extern "C" __global__ void bfloat_arithmetic(__nv_bfloat16* sums, __nv_bfloat16* products,
                                             __nv_bfloat16* quotients, unsigned char* less,
                                             const __nv_bfloat16* x, const __nv_bfloat16* y,
                                             int count) {
  arithmetic(sums, products, quotients, less, x, y, count);
}

extern "C" __global__ void pairs(unsigned* halves, unsigned* bfloats, unsigned* tf32, const float* x,
                                 int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    halves[i] = pack_f16(x[2 * i], x[2 * i + 1]);
    bfloats[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
    tf32[i] = to_tf32(x[2 * i]);
  }
}

// One warp: what each lane gets of lane + 1, lane - 3, lane ^ 5, lane 7 of its eight, and a vote.
extern "C" __global__ void shuffles(int* out, const int* x) {
  const int lane = threadIdx.x, own = x[lane];
  out[lane] = __shfl_down_sync(0xffffffff, own, 1);
  out[32 + lane] = __shfl_up_sync(0xffffffff, own, 3, 16);
  out[64 + lane] = __shfl_xor_sync(0xffffffff, own, 5);
  out[96 + lane] = __shfl_sync(0xffffffff, own, 7, 8);
  out[128 + lane] = (int)__ballot_sync(0xffffffff, own % 3 == 0);
  out[160 + lane] = __any_sync(0xffffffff, own == 40) + 2 * __all_sync(0xffffffff, own < 100);
}

// Blocks of any shape: what a thread knows of its place.
extern "C" __global__ void places(int* out) {
  const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const int threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = 100 * (threadIdx.x + 10 * threadIdx.y + 10 * blockIdx.x) + blockIdx.z;
}

extern "C" __global__ void next(float* y, const float* x) {
  y[threadIdx.x] = x[threadIdx.x] + 1.0f;
}
