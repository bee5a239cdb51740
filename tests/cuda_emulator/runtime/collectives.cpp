// What the lanes of a warp, or the threads of a block, do together.
#include "machine.h"

#include <string.h>

namespace cuda_emulator {

namespace {

struct Shuffle {
  void* value;
  unsigned bytes;
  From from;
  int by, width;
  Site site;
};

void perform_shuffle(unsigned, void* const* operands) {
  char given[kWarp][16];
  for (int lane = 0; lane < kWarp; ++lane)
    if (auto* shuffle = static_cast<Shuffle*>(operands[lane]))
      memcpy(given[lane], shuffle->value, shuffle->bytes);
  for (int lane = 0; lane < kWarp; ++lane) {
    auto* shuffle = static_cast<Shuffle*>(operands[lane]);
    if (shuffle == nullptr) continue;
    const int width = shuffle->width, first = lane / width * width, by = shuffle->by;
    int source = lane;
    if (shuffle->from == From::lane) source = first + (by & (width - 1));
    if (shuffle->from == From::up) source = lane - by;
    if (shuffle->from == From::down) source = lane + by;
    if (shuffle->from == From::exclusive_or) source = lane ^ by;
    // Past the end of its part, or before it, a lane gets its own value; by exclusive or it may
    // read from parts before.
    if (source < 0 || source >= first + width) source = lane;
    if (source < first && shuffle->from != From::exclusive_or) source = lane;
    if (operands[source] == nullptr)
      fail("a shuffle reads from lane %d, which takes no part\n  at: %s", source,
           place(shuffle->site).text);
    memcpy(shuffle->value, given[source], shuffle->bytes);
  }
}

struct Vote {
  bool vote;
  unsigned result;
};

void perform_ballot(unsigned, void* const* operands) {
  unsigned votes = 0;
  for (int lane = 0; lane < kWarp; ++lane)
    if (operands[lane] && static_cast<Vote*>(operands[lane])->vote) votes |= 1u << lane;
  for (int lane = 0; lane < kWarp; ++lane)
    if (operands[lane]) static_cast<Vote*>(operands[lane])->result = votes;
}

void perform_warp_barrier(unsigned warp, void* const*) { last_warp_barrier[warp] = ++now; }

const Meeting kShuffle{"a shuffle", false, perform_shuffle};
const Meeting kBallot{"a vote", false, perform_ballot};
const Meeting kWarpBarrier{"__syncwarp", false, perform_warp_barrier};

}  // namespace

void block_barrier() { wait_for_block(__builtin_return_address(0)); }

void warp_barrier(unsigned mask) {
  const Site site = __builtin_return_address(0);
  if (mask != 0xffffffff)
    fail("__syncwarp of a part of a warp, which the emulator does not model\n  at: %s",
         place(site).text);
  meet(kWarpBarrier, mask, &mask, site);
}

void memory_fence() {}  // orders nothing by itself; patterns of flags are not modelled

void shuffle(unsigned mask, void* value, unsigned bytes, From from, int by, int width) {
  Shuffle operands{value, bytes, from, by, width, __builtin_return_address(0)};
  meet(kShuffle, mask, &operands, operands.site);
}

unsigned ballot(unsigned mask, bool vote) {
  Vote operands{vote, 0};
  meet(kBallot, mask, &operands, __builtin_return_address(0));
  return operands.result;
}

uint64_t atomic(void* address, unsigned bytes, uint64_t (*operation)(uint64_t, uint64_t),
                uint64_t operand) {
  check_atomic(address, bytes, __builtin_return_address(0));
  uint64_t old = 0;
  memcpy(&old, address, bytes);
  const uint64_t made = operation(old, operand);
  memcpy(address, &made, bytes);
  return old;
}

}  // namespace cuda_emulator
