// The machine that runs a launch: what the parts of the runtime share.
//
// One block runs at a time, and of it one thread at a time, each a fiber on a stack of its own. Time
// is a counter of what orders memory: each barrier, of a block or of a warp, and each new block adds
// one, and every access is stamped with it (memory.cpp). Of two accesses by different threads the
// first is ordered before the second if a barrier that both passed lies between.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../include/device.h"

namespace cuda_emulator {

constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMostWarps = kMostThreads / kWarp;

using Site = const void*;  // an address in a kernel's code, behind a call

// A meeting of lanes of one warp: each waits with its operands, then all are performed at once.
struct Meeting {
  const char* name;
  bool aligned;  // all lanes come from the same place in the source
  // `operands` has an entry for each lane, null for those that do not take part.
  void (*perform)(unsigned warp, void* const* operands);
};

enum class State : uint8_t { ready, at_barrier, at_meeting, done };

struct Fiber {
  void* stack_pointer;
  State state;
  Site site;  // where it waits
  const Meeting* meeting;
  unsigned mask;
  void* operands;
};

// fibers.cpp
extern Fiber fibers[kMostThreads];
extern unsigned current;  // the thread that runs, by its number in the block
extern unsigned threads;  // of a block
extern uint32_t now;
extern uint32_t launch_began, block_began, last_barrier, last_warp_barrier[kMostWarps];
extern const char* stacks;  // of all fibers
extern size_t stacks_bytes;
extern unsigned dynamic_shared_bytes;

void wait_for_block(Site site);
void meet(const Meeting& meeting, unsigned mask, void* operands, Site site);
Index thread_of(unsigned thread);
Index block_at(uint32_t time);

// memory.cpp
void check_access(const void* address, size_t bytes, bool write, Site site, unsigned thread);
void check_atomic(const void* address, size_t bytes, Site site);
// A write that lands later: until then nobody may touch what it will write.
void begin_copy(const void* to, size_t bytes, Site site);
void end_copy(const void* to, size_t bytes);
void begin_block_memory();
void end_block_memory();
void begin_launch_memory();

// copies.cpp
void forget_copies();

// report.cpp: ends the launch with this message.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
extern char error[8192];

struct Place {
  char text[600];  // file:line and the line itself
};
Place place(Site site);
bool same_line(Site a, Site b);
Site site_of(uint32_t offset);
uint32_t offset_of(Site site);
bool in_image(const void* address);

// fibers.cpp: back to the launch, from whatever stack.
[[noreturn]] void leave_launch();

}  // namespace cuda_emulator
