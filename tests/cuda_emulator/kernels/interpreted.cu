// A program as arrays, so that test_races.py can draw one at random.

// Steps: 0 nothing, 1 a read, 2 a write, 3 an atomic addition, of the word that
// another array names; then no barrier (0), that of the warp (1) or of the block (2).
extern "C" __global__ void interpreted(int* words, int* sink, const int* kinds, const int* targets,
                                       const int* barriers, int steps) {
  const int thread = threadIdx.x, threads = blockDim.x;
  for (int step = 0; step < steps; ++step) {
    const int at = (blockIdx.x * steps + step) * threads + thread;
    const int kind = kinds[at], target = targets[at];
    if (kind == 1) sink[at] = words[target];
    if (kind == 2) words[target] = thread;
    if (kind == 3) atomicAdd(&words[target], 1);
    const int barrier = barriers[at];
    if (barrier == 1) __syncwarp();
    if (barrier == 2) __syncthreads();
  }
}
