// Right kernels, each of which test_faults.py breaks in several ways. Blocks are of 64 threads, two
// warps, unless it says otherwise.

extern "C" __global__ void reversed(float* out, const float* x) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  const float other = tile[63 - threadIdx.x];
  __syncthreads();
  tile[threadIdx.x] = other;
  out[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void reversed_in_warps(float* out, const float* x) {
  __shared__ float tile[64];
  const int lane = threadIdx.x % 32, first = threadIdx.x - lane;
  tile[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  const float other = tile[first + 31 - lane];
  __syncwarp();
  tile[threadIdx.x] = other + __shfl_xor_sync(0xffffffff, other, 1);
  out[threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void counted(int* total, const int* x) {
  atomicAdd(total, x[blockIdx.x * 64 + threadIdx.x]);
}

extern "C" __global__ void bytes(signed char* out, const signed char* x) {
  __shared__ signed char tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x ^ 1];
}

extern "C" __global__ void vectors(float* out, const float* x) {
  alignas(16) __shared__ float tile[64];
  if (threadIdx.x < 16) {
    *reinterpret_cast<float4*>(&tile[4 * threadIdx.x]) =
        *reinterpret_cast<const float4*>(&x[4 * threadIdx.x]);
  }
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}

// 64 floats for each of two stages; the copies of the next stage run during the work on this one.
extern "C" __global__ void staged(float* out, const float* x, int stages) {
  extern __shared__ __align__(16) float tiles[];
  const int thread = threadIdx.x;
  if (thread < 16) {
    cp_async_16(&tiles[4 * thread], &x[4 * thread], 16);
  }
  cp_async_commit();
  float sum = 0.0f;
  for (int stage = 0; stage < stages; ++stage) {
    const int next = stage + 1;
    if (thread < 16) {
      cp_async_16(&tiles[next % 2 * 64 + 4 * thread], &x[next * 64 + 4 * thread], next < stages ? 16 : 0);
    }
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();  // landed
    sum += tiles[stage % 2 * 64 + 63 - thread];
    __syncthreads();  // used
  }
  out[thread] = sum;
}

extern "C" __global__ void summed(float* out, const float* x) {
  float sum = x[threadIdx.x];
  sum += __shfl_down_sync(0xffffffff, sum, 16);
  sum += __shfl_down_sync(0xffffffff, sum, 8);
  if (threadIdx.x % 32 < 8) {
    sum += __shfl_down_sync(0xff, sum, 4, 8);
  }
  __syncthreads();
  out[threadIdx.x] = __shfl_sync(0xffffffff, sum, 0);
}

// One warp.
extern "C" __global__ void fragments(unsigned* out, const unsigned* x) {
  __shared__ alignas(16) unsigned tile[128];
  const int lane = threadIdx.x;
  *reinterpret_cast<uint4*>(&tile[4 * lane]) = *reinterpret_cast<const uint4*>(&x[4 * lane]);
  __syncwarp();
  unsigned a[4];
  float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  ldmatrix_x4(&a[0], &tile[4 * lane]);
  mma_f16(&c[0], &a[0], &a[2]);
  for (int i = 0; i < 4; ++i) {
    out[4 * lane + i] = __float_as_uint(c[i]);
  }
}
