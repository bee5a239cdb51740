// Runs the emitted CUDA C on the CPU: one __global__ function at a time, block after block, with one
// fiber (a user-level thread) for each CUDA thread. It checks results and that barriers are reached
// by all; what it does not show is speed, alignment, spills and fast math.
//
// Warps run one at a time, from barrier to barrier, in ascending or descending order: a kernel that
// lacks a barrier then gives two different results, or a wrong one. Shared memory is filled with NaN
// before each block, so that what a kernel did not write shows.
#pragma once

#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <utility>

#define __global__
#define __device__
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("cuda_shared")))
#define alignas(bytes) __attribute__((aligned(bytes)))  // which may follow `static`
extern "C" __attribute__((weak)) char __start_cuda_shared[], __stop_cuda_shared[];

namespace cuda_host {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;
constexpr size_t kStackBytes = 64 * 1024;

struct Index {
  unsigned x, y, z;
};

enum class State { ready, at_barrier, at_shuffle, done };

struct Fiber {
  ucontext_t start;  // only to begin with: swapcontext would make two system calls a switch
  jmp_buf resume;
  bool started;
  char* stack;
  Index thread;
  unsigned lane, warp, shuffles;
  State state;
};

inline Index block;                  // blockIdx
inline Fiber* current;               // the running fiber; its `thread` is threadIdx
inline jmp_buf scheduler;
inline Fiber fibers[kMostThreads];
inline float exchanged[kMostThreads][2];  // what lanes give in shuffles, in two slots
inline void (*body)(void*);          // runs the kernel with the arguments of the launch
inline void* arguments;
inline const char* error = "";
inline int64_t barriers;             // passed by blocks in the last launch

inline void wait(State state) {
  current->state = state;
  if (_setjmp(current->resume) == 0) _longjmp(scheduler, 1);
}

inline void resume(Fiber& fiber) {
  current = &fiber;
  if (_setjmp(scheduler) != 0) return;
  if (fiber.started) _longjmp(fiber.resume, 1);
  fiber.started = true;
  setcontext(&fiber.start);
}

inline void run_body() {
  body(arguments);
  wait(State::done);
}

inline float shuffle_xor(float value, int lane_mask, int width) {
  // Two slots in turn: nobody can be two shuffles ahead of a lane of the same warp.
  unsigned slot = current->shuffles++ % 2;
  unsigned first = current->warp * kWarp, lane = current->lane;
  exchanged[first + lane][slot] = value;
  wait(State::at_shuffle);
  unsigned other = lane ^ static_cast<unsigned>(lane_mask);
  if (other / width != lane / width) other = lane;
  return exchanged[first + other][slot];
}

inline void start_fibers(Index size) {
  unsigned count = size.x * size.y * size.z;
  for (unsigned i = 0; i < count; ++i) {
    Fiber& f = fibers[i];
    f.thread = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    f.lane = i % kWarp, f.warp = i / kWarp, f.shuffles = 0, f.state = State::ready, f.started = false;
    if (f.stack == nullptr) f.stack = static_cast<char*>(malloc(kStackBytes));
    getcontext(&f.start);
    f.start.uc_stack.ss_sp = f.stack;
    f.start.uc_stack.ss_size = kStackBytes;
    f.start.uc_link = nullptr;  // run_body does not return
    makecontext(&f.start, run_body, 0);
  }
}

// All of fibers [first, end) are in this state; then they may go on.
inline bool release(unsigned first, unsigned end, State state) {
  for (unsigned i = first; i < end; ++i)
    if (fibers[i].state != state) return false;
  for (unsigned i = first; i < end; ++i) fibers[i].state = State::ready;
  return true;
}

// Run one warp as far as it gets without the others: to a barrier, or to its end.
inline void run_warp(unsigned first, unsigned end, bool descending) {
  do {
    for (unsigned i = first; i < end; ++i) {
      Fiber& f = fibers[descending ? end - 1 - (i - first) : i];
      if (f.state == State::ready) resume(f);
    }
  } while (release(first, end, State::at_shuffle));
}

inline bool run_block(Index size, bool descending) {
  unsigned count = size.x * size.y * size.z, warps = (count + kWarp - 1) / kWarp;
  start_fibers(size);
  if (__start_cuda_shared) memset(__start_cuda_shared, 0xff, __stop_cuda_shared - __start_cuda_shared);
  for (;; ++barriers) {
    for (unsigned i = 0; i < warps; ++i) {
      unsigned first = (descending ? warps - 1 - i : i) * kWarp;
      run_warp(first, first + kWarp < count ? first + kWarp : count, descending);
    }
    if (!release(0, count, State::at_barrier)) break;
  }
  for (unsigned i = 0; i < count; ++i)
    if (fibers[i].state != State::done) {
      error = "some threads wait at a barrier or shuffle that others do not reach";
      return false;
    }
  return true;
}

template <typename Call>
int launch(const unsigned* grid, const unsigned* threads, int descending, Call call) {
  body = [](void* self) { (*static_cast<Call*>(self))(); };
  arguments = &call;
  barriers = 0;
  for (block.z = 0; block.z < grid[2]; ++block.z)
    for (block.y = 0; block.y < grid[1]; ++block.y)
      for (block.x = 0; block.x < grid[0]; ++block.x)
        if (!run_block({threads[0], threads[1], threads[2]}, descending)) return 1;
  return 0;
}

template <typename... Types, size_t... at>
int launch_unpacked(void (*kernel)(Types...), const unsigned* grid, const unsigned* threads,
                    void** given, std::index_sequence<at...>) {
  return launch(grid, threads, 0, [=] { kernel(*static_cast<Types*>(given[at])...); });
}

// As cuLaunchKernel: arguments are pointers to each argument.
template <typename... Types>
int launch_with(void (*kernel)(Types...), const unsigned* grid, const unsigned* threads,
                unsigned /*dynamic_shared*/, void** given) {
  return launch_unpacked(kernel, grid, threads, given, std::index_sequence_for<Types...>());
}

}  // namespace cuda_host

extern "C" const char* cuda_emulator_error() { return cuda_host::error; }

extern "C" const char* cuda_host_error() { return cuda_host::error; }

extern "C" int64_t cuda_host_barriers() { return cuda_host::barriers; }

#define threadIdx (cuda_host::current->thread)
#define blockIdx (cuda_host::block)
#define __syncthreads() cuda_host::wait(cuda_host::State::at_barrier)
#define __shfl_xor_sync(mask, value, lane_mask, width) \
  cuda_host::shuffle_xor(value, lane_mask, width)

inline float max(float a, float b) { return fmaxf(a, b); }  // as in CUDA: a number beats NaN
inline float min(float a, float b) { return fminf(a, b); }
inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
