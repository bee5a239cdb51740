// Fragments by themselves, and products that are made of them. One warp each.

// a has 4 registers a lane (tf32 too), b 2, c 4.
extern "C" __global__ void mma_once(float* c, const unsigned* a, const unsigned* b, int number) {
  const int lane = threadIdx.x;
  unsigned own_a[4], own_b[2];
  float own_c[4];
  for (int i = 0; i < 4; ++i) own_a[i] = a[4 * lane + i];
  for (int i = 0; i < 2; ++i) own_b[i] = b[2 * lane + i];
  for (int i = 0; i < 4; ++i) own_c[i] = c[4 * lane + i];
  if (number == 0) mma_f16(&own_c[0], &own_a[0], &own_b[0]);
  if (number == 1) mma_bf16(&own_c[0], &own_a[0], &own_b[0]);
  if (number == 2) mma_tf32(&own_c[0], &own_a[0], &own_b[0]);
  for (int i = 0; i < 4; ++i) c[4 * lane + i] = own_c[i];
}

// Four 8 x 8 matrices behind one another, as they are and transposed.
extern "C" __global__ void ldmatrix_once(unsigned* plain, unsigned* transposed,
                                         const unsigned short* x) {
  __shared__ alignas(16) unsigned short tile[4 * 64];
  const int lane = threadIdx.x;
  for (int i = lane; i < 4 * 64; i += 32) tile[i] = x[i];
  __syncwarp();
  unsigned own[4];
  ldmatrix_x4(&own[0], &tile[8 * lane]);
  for (int i = 0; i < 4; ++i) plain[4 * lane + i] = own[i];
  ldmatrix_x4_trans(&own[0], &tile[8 * lane]);
  for (int i = 0; i < 4; ++i) transposed[4 * lane + i] = own[i];
}

// c (m, n) = a (m, depth) b^T (n, depth); all multiples of 16. A block makes 16 x 16, two stages of
// 16 of the depth.
template <typename T>
__device__ void product(float* c, const T* a, const T* b, int n, int depth, int number) {
  __shared__ alignas(16) T tiles[2][2][16 * 24];
  const int lane = threadIdx.x, row0 = blockIdx.x * 16, column0 = blockIdx.y * 16;
  const int row = lane / 2, at = lane % 2 * 8;
  cp_async_16(&tiles[0][0][row * 24 + at], &a[(row0 + row) * depth + at], 16);
  cp_async_16(&tiles[0][1][row * 24 + at], &b[(column0 + row) * depth + at], 16);
  cp_async_commit();
  float sums[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
  for (int d = 0; d < depth; d += 16) {
    const int now = d / 16 % 2, next = 1 - now, bytes = d + 16 < depth ? 16 : 0;
    cp_async_16(&tiles[next][0][row * 24 + at], &a[(row0 + row) * depth + d + 16 + at], bytes);
    cp_async_16(&tiles[next][1][row * 24 + at], &b[(column0 + row) * depth + d + 16 + at], bytes);
    cp_async_commit();
    cp_async_wait<1>();
    __syncwarp();
    unsigned own_a[4], own_b[4];
    ldmatrix_x4(&own_a[0], &tiles[now][0][lane % 16 * 24 + lane / 16 * 8]);
    ldmatrix_x4(&own_b[0], &tiles[now][1][(lane / 16 * 8 + lane % 8) * 24 + lane / 8 % 2 * 8]);
    for (int j = 0; j < 2; ++j) {
      if (number == 0) mma_f16(&sums[4 * j], &own_a[0], &own_b[2 * j]);
      if (number == 1) mma_bf16(&sums[4 * j], &own_a[0], &own_b[2 * j]);
    }
    __syncwarp();
  }
  for (int j = 0; j < 2; ++j) {
    for (int i = 0; i < 4; ++i) {
      const int m = row0 + lane / 4 + i / 2 * 8;
      c[m * n + column0 + 8 * j + lane % 4 * 2 + i % 2] = sums[4 * j + i];
    }
  }
}

extern "C" __global__ void product_f16(float* c, const half* a, const half* b, int n, int depth) {
  product(c, a, b, n, depth, 0);
}

extern "C" __global__ void product_bf16(float* c, const __nv_bfloat16* a, const __nv_bfloat16* b,
                                        int n, int depth) {
  product(c, a, b, n, depth, 1);
}

// The same of float32 by tf32, straight from global memory: 16 x 8 a block.
extern "C" __global__ void product_tf32(float* c, const float* a, const float* b, int n, int depth) {
  const int lane = threadIdx.x, group = lane / 4, quad = lane % 4;
  const int row0 = blockIdx.x * 16, column0 = blockIdx.y * 8;
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int d = 0; d < depth; d += 8) {
    unsigned own_a[4], own_b[2];
    for (int i = 0; i < 4; ++i)
      own_a[i] = to_tf32(a[(row0 + group + i % 2 * 8) * depth + d + quad + i / 2 * 4]);
    for (int i = 0; i < 2; ++i) own_b[i] = to_tf32(b[(column0 + group) * depth + d + quad + i * 4]);
    mma_tf32(&sums[0], &own_a[0], &own_b[0]);
  }
  for (int i = 0; i < 4; ++i) {
    c[(row0 + group + i / 2 * 8) * n + column0 + 2 * quad + i % 2] = sums[i];
  }
}
