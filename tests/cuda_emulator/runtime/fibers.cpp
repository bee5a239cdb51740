// Runs a grid: blocks one after another, warps from barrier to barrier, lanes from meeting to
// meeting, in an order that the caller chooses.
#include <setjmp.h>
#include <sys/mman.h>

#include <vector>

#include "machine.h"

#if !defined(__x86_64__)
#error "the emulator switches stacks in x86-64 assembly"
#endif

// Keeps the registers that a call keeps on this stack, and goes on on the other one.
extern "C" void cuda_emulator_switch(void** from, void* to) __attribute__((visibility("hidden")));
asm(R"(
.text
.hidden cuda_emulator_switch
.globl cuda_emulator_switch
.type cuda_emulator_switch, @function
cuda_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_emulator_switch, .-cuda_emulator_switch
)");

namespace cuda_emulator {

Index thread_index, block_index, block_size, grid_size;
Fiber fibers[kMostThreads];
unsigned current, threads;
uint32_t now, launch_began, block_began, last_barrier, last_warp_barrier[kMostWarps];
const char* stacks;
size_t stacks_bytes;
unsigned dynamic_shared_bytes;

namespace {

constexpr size_t kStack = 128 * 1024;
constexpr size_t kGuard = 4096;  // below each stack: an overflow faults

enum Order { ascending, descending, shuffled };
int order;
uint64_t seed, random_state;
void* scheduler;  // its stack pointer while a fiber runs
jmp_buf launch_point;
void (*kernel_body)(void*);
void* kernel_self;
int64_t barriers;
int left_out = -1;
unsigned guarded;  // fibers whose stack has its guard
struct Began {
  uint32_t time;
  Index block;
};
std::vector<Began> blocks;

unsigned below(unsigned count) {
  random_state ^= random_state << 13, random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return static_cast<unsigned>((random_state >> 11) % count);
}

// The numbers 0 .. count - 1 in the order of this launch.
struct Sequence {
  unsigned at[kMostThreads];
  explicit Sequence(unsigned count) {
    for (unsigned i = 0; i < count; ++i) at[i] = order == descending ? count - 1 - i : i;
    if (order == shuffled)
      for (unsigned i = count; i > 1; --i) {
        const unsigned j = below(i), kept = at[j];
        at[j] = at[i - 1], at[i - 1] = kept;
      }
  }
};

void stop(State state, Site site) {
  Fiber& fiber = fibers[current];
  fiber.state = state, fiber.site = site;
  cuda_emulator_switch(&fiber.stack_pointer, scheduler);
}

void fiber_main() {
  kernel_body(kernel_self);
  stop(State::done, nullptr);
  __builtin_unreachable();
}

void start_fiber(unsigned thread) {
  char* stack = const_cast<char*>(stacks) + thread * kStack;
  for (; guarded <= thread; ++guarded)
    mprotect(const_cast<char*>(stacks) + guarded * kStack, kGuard, PROT_NONE);
  // As if fiber_main had been called: 6 registers, the return address, 8 bytes to a multiple of 16.
  void** top = reinterpret_cast<void**>(stack + kStack) - 8;
  top[6] = reinterpret_cast<void*>(fiber_main);
  fibers[thread] = {top, State::ready, nullptr, nullptr, 0, nullptr};
}

void resume(unsigned thread) {
  current = thread;
  thread_index = thread_of(thread);
  cuda_emulator_switch(&scheduler, fibers[thread].stack_pointer);
}

unsigned lanes_of(unsigned warp) {
  const unsigned left = threads - warp * kWarp;
  return left < kWarp ? left : kWarp;
}

[[noreturn]] void fail_apart(unsigned waiting, unsigned other) {
  const Fiber& a = fibers[waiting];
  const Fiber& b = fibers[other];
  const Index i = thread_of(waiting), j = thread_of(other);
  const char* name = a.state == State::at_barrier ? "__syncthreads" : a.meeting->name;
  const char* rule = a.state == State::at_barrier ? "all threads of the block" : "all lanes of its mask";
  if (b.state == State::done)
    fail("divergence in block (%u, %u, %u): thread (%u, %u, %u) waits at %s for %s, but thread "
         "(%u, %u, %u) has ended\n  waits: %s",
         block_index.x, block_index.y, block_index.z, i.x, i.y, i.z, name, rule, j.x, j.y, j.z,
         place(a.site).text);
  fail("divergence in block (%u, %u, %u): thread (%u, %u, %u) waits at %s for %s, but thread "
       "(%u, %u, %u) waits at %s\n  one: %s\n  other: %s",
       block_index.x, block_index.y, block_index.z, i.x, i.y, i.z, name, rule, j.x, j.y, j.z,
       b.state == State::at_barrier ? "__syncthreads" : b.meeting->name, place(a.site).text,
       place(b.site).text);
}

// Performs the meetings whose lanes are all there; whether there were any.
bool perform_meetings(unsigned warp) {
  const unsigned first = warp * kWarp, lanes = lanes_of(warp);
  bool any = false;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const Fiber& leader = fibers[first + lane];
    if (leader.state != State::at_meeting) continue;
    if (!(leader.mask >> lane & 1))
      fail("%s by a lane that is not in its own mask\n  at: %s", leader.meeting->name,
           place(leader.site).text);
    void* operands[kWarp] = {};
    bool complete = true;
    for (unsigned other = 0; other < lanes; ++other) {
      if (!(leader.mask >> other & 1)) continue;
      const Fiber& fiber = fibers[first + other];
      complete = fiber.state == State::at_meeting && fiber.meeting == leader.meeting &&
                 fiber.mask == leader.mask;
      if (!complete) break;
      if (leader.meeting->aligned && !same_line(fiber.site, leader.site))
        fail_apart(first + lane, first + other);
      operands[other] = fiber.operands;
    }
    if (!complete) continue;
    leader.meeting->perform(warp, operands);
    for (unsigned other = 0; other < lanes; ++other)
      if (operands[other]) fibers[first + other].state = State::ready;
    any = true;
  }
  return any;
}

// Runs the lanes of a warp until each waits; whether they may go on at once.
bool run_warp(unsigned warp) {
  const Sequence sequence(lanes_of(warp));
  for (unsigned i = 0; i < lanes_of(warp); ++i) {
    const unsigned thread = warp * kWarp + sequence.at[i];
    if (fibers[thread].state == State::ready) resume(thread);
  }
  return perform_meetings(warp);
}

void run_warps() {
  const unsigned warps = (threads + kWarp - 1) / kWarp;
  for (bool moved = true; moved;) {  // more than once only if warps take turns
    moved = false;
    const Sequence sequence(warps);
    for (unsigned i = 0; i < warps; ++i)
      while (run_warp(sequence.at[i])) {
        moved = true;
        if (order == shuffled) break;
      }
    if (order != shuffled) break;
  }
}

// All threads wait at one barrier, or all have ended; then whether they wait.
bool at_barrier() {
  unsigned waiting = kMostThreads, other = kMostThreads;
  for (unsigned i = 0; i < threads; ++i) {
    const State state = fibers[i].state;
    if (state == State::at_meeting) {
      unsigned absent = i / kWarp * kWarp;  // the lane of its mask that did not come
      for (unsigned n = 0; n < lanes_of(i / kWarp); ++n) {
        const Fiber& fiber = fibers[absent + n];
        if (fibers[i].mask >> n & 1 && (fiber.state != State::at_meeting ||
            fiber.meeting != fibers[i].meeting || fiber.mask != fibers[i].mask))
          fail_apart(i, absent + n);
      }
      fail("%s: a mask that names no lane", fibers[i].meeting->name);
    }
    if (state == State::at_barrier && waiting == kMostThreads) waiting = i;
    if (state == State::done && other == kMostThreads) other = i;
  }
  if (waiting == kMostThreads) return false;
  if (other != kMostThreads) fail_apart(waiting, other);
  for (unsigned i = 0; i < threads; ++i)
    if (!same_line(fibers[i].site, fibers[waiting].site)) fail_apart(waiting, i);
  return true;
}

void run_block() {
  block_began = last_barrier = ++now;
  for (uint32_t& time : last_warp_barrier) time = now;
  blocks.push_back({now, block_index});
  begin_block_memory();
  forget_copies();
  for (unsigned i = 0; i < threads; ++i) start_fiber(i);
  for (run_warps(); at_barrier(); run_warps()) {
    last_barrier = ++now, ++barriers;
    for (unsigned i = 0; i < threads; ++i) fibers[i].state = State::ready;
  }
  end_block_memory();
}

void run_blocks() {
  for (unsigned z = 0; z < grid_size.z; ++z)
    for (unsigned y = 0; y < grid_size.y; ++y)
      for (unsigned x = 0; x < grid_size.x; ++x) {
        block_index = {x, y, z};
        run_block();
      }
}

}  // namespace

bool kept(int step) { return step != left_out; }

void wait_for_block(Site site) { stop(State::at_barrier, site); }

void meet(const Meeting& meeting, unsigned mask, void* operands, Site site) {
  Fiber& fiber = fibers[current];
  fiber.meeting = &meeting, fiber.mask = mask, fiber.operands = operands;
  stop(State::at_meeting, site);
}

Index thread_of(unsigned thread) {
  return {thread % block_size.x, thread / block_size.x % block_size.y,
          thread / block_size.x / block_size.y};
}

Index block_at(uint32_t time) {
  Index found = block_index;
  for (const Began& began : blocks)
    if (began.time <= time) found = began.block;
  return found;
}

void leave_launch() { _longjmp(launch_point, 1); }

int run_grid(const char* name, const unsigned* grid, const unsigned* block, unsigned dynamic_shared,
             void (*body)(void*), void* self) {
  if (stacks == nullptr) {
    stacks_bytes = kMostThreads * kStack;
    stacks = static_cast<char*>(mmap(nullptr, stacks_bytes, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  error[0] = 0;
  kernel_body = body, kernel_self = self, dynamic_shared_bytes = dynamic_shared;
  grid_size = {grid[0], grid[1], grid[2]}, block_size = {block[0], block[1], block[2]};
  threads = block[0] * block[1] * block[2];
  barriers = 0, random_state = seed * 2654435769u + 88172645463325252u;
  if (_setjmp(launch_point) != 0) return 1;
  if (threads == 0 || threads > kMostThreads) fail("%s: %u threads a block", name, threads);
  launch_began = ++now;
  blocks.clear();
  begin_launch_memory();
  run_blocks();
  ++now;
  return 0;
}

}  // namespace cuda_emulator

#define API extern "C" __attribute__((visibility("default")))

// 0: threads and warps ascending; 1: descending; 2: at random, warps taking turns at each meeting.
API void cuda_emulator_set_order(int order, uint64_t seed) {
  cuda_emulator::order = order, cuda_emulator::seed = seed;
}

// Barriers of the last launch, each counted once a block.
API int64_t cuda_emulator_barriers() { return cuda_emulator::barriers; }

// The step that is not `kept` in the launches that follow, by its number; none where it is below 0.
API void cuda_emulator_leave_out(int step) { cuda_emulator::left_out = step; }
