// Shadow memory. Each word that threads share remembers who wrote it last and who has read it since,
// when and from which line of the source; an access that is not ordered against those is a race.
//
// CUDA orders memory by barriers: __syncthreads for the threads of a block, __syncwarp for those of
// a warp. Shuffles, votes, ldmatrix and mma do not, blocks of one launch not at all. Two atomic
// accesses are no race.
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace cuda_emulator {

namespace {

struct Stamp {
  uint32_t time;  // 0: never
  uint32_t site;
  uint16_t thread;
  bool pending;  // an asynchronous copy that has not been waited for
};

// Those that have read a word since it was written. Two are enough: the last, and a different thread,
// of another warp or block if there is one. Whoever conflicts with any conflicts with one of them.
struct Seen {
  Stamp last, other;
};

struct Cell {
  Stamp writer;
  Seen readers, atomics;
};

struct Free {
  void operator()(void* memory) const { free(memory); }
};
using Cells = std::unique_ptr<Cell[], Free>;

// From calloc, whose pages take no memory until a kernel comes to them.
Cells new_cells(size_t bytes, unsigned granule) {
  return Cells(static_cast<Cell*>(calloc((bytes >> granule) + 1, sizeof(Cell))));
}

struct Region {
  char* start;
  size_t bytes;
  size_t element;  // bytes of an element, for messages; 0: unknown
  std::string name;
  bool shared;
  int line;           // of the declaration, for shared memory
  size_t alignment;   // that the declaration promises, for shared memory
  unsigned granule;   // log2 of the bytes of a cell
  Cells cells;
};

constexpr size_t kArena = 1 << 20;
alignas(4096) char arena[kArena];
size_t arena_used;
std::deque<Region> shared_regions;  // of the kernel that runs; they stay where they are
std::vector<Region> global_regions;
Region* latest;
// The first read in this block of what nobody had written. If that was for want of a barrier, the
// write is still to come, and then is a race, which says more; if none comes, this is the error.
struct Doubt {
  const Region* region;  // null: none
  size_t offset;
  Stamp reader;
} doubt;

bool in_arena(const void* address) { return address >= arena && address < arena + kArena; }

// A thread's own memory, or constants of the library.
inline bool private_to_thread(const void* address) {
  if (static_cast<size_t>(static_cast<const char*>(address) - stacks) < stacks_bytes) return true;
  return !in_arena(address) && in_image(address);
}

Region* find(const void* address) {
  const char* at = static_cast<const char*>(address);
  if (latest && at >= latest->start && at < latest->start + latest->bytes) return latest;
  const auto look = [&](auto& regions) -> Region* {
    for (Region& region : regions)
      if (at >= region.start && at < region.start + region.bytes) return latest = &region;
    return nullptr;
  };
  return in_arena(address) ? look(shared_regions) : look(global_regions);
}

std::string named(const Region& region, size_t offset) {
  if (region.element == 0) return region.name + ", byte " + std::to_string(offset);
  std::string text = region.name + "[" + std::to_string(offset / region.element) + "]";
  if (offset % region.element) text += ", byte " + std::to_string(offset % region.element);
  return text;
}

std::string by(unsigned thread, Index block) {
  const Index i = thread_of(thread);
  char text[120];
  snprintf(text, sizeof text, "thread (%u, %u, %u) of block (%u, %u, %u)", i.x, i.y, i.z, block.x,
           block.y, block.z);
  return text;
}

[[noreturn]] void fail_outside(const void* address, size_t bytes, bool write, Site site,
                               unsigned thread) {
  const char* at = static_cast<const char*>(address);
  const Region* nearest = nullptr;
  long distance = 0;
  const auto look = [&](const auto& regions) {
    for (const Region& region : regions) {
      const long past = at - region.start;
      const long off = past < 0 ? past : past - static_cast<long>(region.bytes);
      if (nearest == nullptr || labs(off) < labs(distance)) nearest = &region, distance = off;
    }
  };
  in_arena(address) ? look(shared_regions) : look(global_regions);
  char where[200] = "no memory of the launch";
  if (nearest)
    snprintf(where, sizeof where, "%ld bytes %s %s of %zu bytes", labs(distance),
             distance < 0 ? "before the start of" : "past the end of", nearest->name.c_str(),
             nearest->bytes);
  fail("out of bounds: %s %s %zu bytes at %s\n  at: %s", by(thread, block_index).c_str(),
       write ? "writes" : "reads", bytes, where, place(site).text);
}

[[noreturn]] void fail_race(const Region& region, size_t offset, const Stamp& earlier,
                            bool earlier_writes, bool write, Site site, unsigned thread) {
  const bool other_block = earlier.time < block_began;
  const bool one_warp = !other_block && earlier.thread / kWarp == thread / kWarp;
  const char* missing = other_block ? "and nothing orders blocks"
                        : one_warp  ? "with no __syncwarp or __syncthreads between"
                                    : "with no __syncthreads between";
  fail("race on %s: %s %s what %s %s, %s\n  %s: %s\n  %s: %s", named(region, offset).c_str(),
       by(thread, block_index).c_str(), write ? "writes" : "reads",
       by(earlier.thread, block_at(earlier.time)).c_str(), earlier_writes ? "wrote" : "read", missing,
       earlier_writes ? "wrote" : "read", place(site_of(earlier.site)).text,
       write ? "writes" : "reads", place(site).text);
}

// Whether an access is not ordered before one of `thread` now.
inline bool unordered(const Stamp& earlier, const Region& region, unsigned thread) {
  if (earlier.time < launch_began) return false;
  if (earlier.time < block_began) return !region.shared;
  if (earlier.thread == thread || earlier.time < last_barrier) return false;
  const unsigned warp = thread / kWarp;
  return earlier.thread / kWarp != warp || earlier.time >= last_warp_barrier[warp];
}

inline bool of_another_block(const Stamp& stamp, const Region& region) {
  return !region.shared && stamp.time >= launch_began && stamp.time < block_began;
}

inline void add(Seen& seen, const Region& region, const Stamp& stamp) {
  Stamp& last = seen.last;
  if (last.time < block_began || last.thread != stamp.thread) {
    // `other` is, if there is any: one of another block, with whom all of this one conflict; or one
    // of another warp, since the last barrier; or the one before.
    const unsigned warp = stamp.thread / kWarp;
    const auto of_another_warp = [&](const Stamp& earlier) {
      return earlier.time >= last_barrier && earlier.thread / kWarp != warp;
    };
    const Stamp& kept = seen.other;
    if (!of_another_block(kept, region) &&
        (of_another_block(last, region) || of_another_warp(last) || !of_another_warp(kept)))
      seen.other = last;
  }
  last = stamp;
}

// Cells of fewer bytes, each with what the larger had.
void refine(Region& region, unsigned granule) {
  const unsigned parts = 1u << (region.granule - granule);
  Cells finer = new_cells(region.bytes, granule);
  for (size_t i = 0; i << granule < region.bytes; ++i) finer[i] = region.cells[i / parts];
  region.cells.swap(finer);
  region.granule = granule;
}

struct Span {
  Region* region;
  size_t first, last;  // cells
};

// The cells of an access; fails if it is not wholly inside a region. Null: not memory of the launch.
inline Span span_of(const void* address, size_t bytes, bool write, Site site, unsigned thread) {
  if (!checked || private_to_thread(address)) return {};
  if (!in_arena(address) && global_regions.empty()) return {};
  Region* region = find(address);
  if (region == nullptr) fail_outside(address, bytes, write, site, thread);
  const size_t offset = static_cast<const char*>(address) - region->start;
  if (offset + bytes > region->bytes)
    fail_outside(region->start + region->bytes, offset + bytes - region->bytes, write, site, thread);
  const unsigned needed = __builtin_ctzl(offset | bytes | 4);
  if (needed < region->granule) refine(*region, needed);
  return {region, offset >> region->granule, (offset + bytes - 1) >> region->granule};
}

[[noreturn]] void fail_pending(const Region& region, size_t offset, const Stamp& copy, bool write,
                               Site site, unsigned thread) {
  fail("too early: %s %s %s before its asynchronous copy by thread (%u, %u, %u) has been waited "
       "for\n  copied: %s\n  %s: %s",
       by(thread, block_index).c_str(), write ? "writes" : "reads", named(region, offset).c_str(),
       thread_of(copy.thread).x, thread_of(copy.thread).y, thread_of(copy.thread).z,
       place(site_of(copy.site)).text, write ? "writes" : "reads", place(site).text);
}

enum class Kind { read, write, atomic, copy };

template <Kind kind>
inline void check(const void* address, size_t bytes, Site site, unsigned thread) {
  constexpr bool write = kind != Kind::read;
  const Span span = span_of(address, bytes, write, site, thread);
  if (span.region == nullptr) return;
  Region& region = *span.region;
  const Stamp stamp{now, offset_of(site), static_cast<uint16_t>(thread), kind == Kind::copy};
  for (size_t i = span.first; i <= span.last; ++i) {
    Cell& cell = region.cells[i];
    const size_t offset = i << region.granule;
    const auto check_seen = [&](const Seen& seen, bool wrote) {
      for (const Stamp* earlier : {&seen.last, &seen.other})
        if (unordered(*earlier, region, thread))
          fail_race(region, offset, *earlier, wrote, write, site, thread);
    };
    if (cell.writer.pending && cell.writer.time >= block_began)
      fail_pending(region, offset, cell.writer, write, site, thread);
    if (unordered(cell.writer, region, thread))
      fail_race(region, offset, cell.writer, true, write, site, thread);
    if (kind != Kind::atomic) check_seen(cell.atomics, true);
    if (kind != Kind::read) check_seen(cell.readers, false);
    if (kind == Kind::read || kind == Kind::atomic) {
      if (region.shared && cell.writer.time < block_began && doubt.region == nullptr)
        doubt = {&region, offset, stamp};
      add(kind == Kind::read ? cell.readers : cell.atomics, region, stamp);
    } else {
      cell = {stamp, {}, {}};
    }
  }
}

inline void check_alignment(const void* address, size_t bytes, bool write, Site site) {
  if ((reinterpret_cast<uintptr_t>(address) & (bytes - 1)) == 0 || !checked) return;
  if (private_to_thread(address)) return;
  const Region* region = find(address);
  if (region == nullptr)
    fail("misaligned: %s %s %zu bytes at once at %p\n  at: %s", by(current, block_index).c_str(),
         write ? "writes" : "reads", bytes, address, place(site).text);
  const size_t offset = static_cast<const char*>(address) - region->start;
  char promise[80] = "";
  if (region->shared)
    snprintf(promise, sizeof promise, ", declared with an alignment of %zu", region->alignment);
  fail("misaligned: %s %s %zu bytes at once at %s%s\n  at: %s", by(current, block_index).c_str(),
       write ? "writes" : "reads", bytes, named(*region, offset).c_str(), promise, place(site).text);
}

}  // namespace

void check_access(const void* address, size_t bytes, bool write, Site site, unsigned thread) {
  if (write)
    check<Kind::write>(address, bytes, site, thread);
  else
    check<Kind::read>(address, bytes, site, thread);
}

void check_aligned_access(const void* address, size_t bytes, bool write, Site site) {
  check_alignment(address, bytes, write, site);
  check_access(address, bytes, write, site, current);
}

void check_atomic(const void* address, size_t bytes, Site site) {
  check_alignment(address, bytes, true, site);
  check<Kind::atomic>(address, bytes, site, current);
}

void begin_copy(const void* to, size_t bytes, Site site) {
  check_alignment(to, bytes, true, site);
  if (!in_arena(to)) fail("an asynchronous copy to what is not shared memory\n  at: %s", place(site).text);
  check<Kind::copy>(to, bytes, site, current);
}

void end_copy(const void* to, size_t bytes) {
  const Span span = span_of(to, bytes, true, nullptr, current);
  if (span.region == nullptr) return;
  for (size_t i = span.first; i <= span.last; ++i) {
    span.region->cells[i].writer.time = now;
    span.region->cells[i].writer.pending = false;
  }
}

void begin_launch_memory() { shared_regions.clear(), arena_used = 0, latest = nullptr; }

void begin_block_memory() {
  memset(arena, 0xff, arena_used);  // NaN
  doubt.region = nullptr;
}

void end_block_memory() {
  if (doubt.region == nullptr) return;
  fail("uninitialised: %s reads %s, which nobody in the block has written\n  at: %s",
       by(doubt.reader.thread, block_index).c_str(), named(*doubt.region, doubt.offset).c_str(),
       place(site_of(doubt.reader.site)).text);
}

void* shared_variable(size_t bytes, size_t alignment, size_t element, const char* name, int line) {
  for (const Region& region : shared_regions)
    if (region.line == line && region.bytes == bytes && region.name == name) return region.start;
  // An odd multiple of the alignment, behind a gap that belongs to nobody.
  const size_t start = (arena_used + 64 + 2 * alignment - 1) / (2 * alignment) * (2 * alignment) + alignment;
  if (start + bytes > kArena) fail("%s: more shared memory than any GPU has", name);
  arena_used = start + bytes;
  memset(arena + start, 0xff, bytes);
  shared_regions.push_back(
      {arena + start, bytes, element, name, true, line, alignment, 2, new_cells(bytes, 2)});
  latest = nullptr;
  return arena + start;
}

void* dynamic_shared_variable(size_t alignment, size_t element, const char* name) {
  for (const Region& region : shared_regions)
    if (region.line == 0) {
      if (reinterpret_cast<uintptr_t>(region.start) % alignment)
        fail("%s: dynamic shared memory was declared with an alignment of %zu before", name,
             region.alignment);
      return region.start;
    }
  return shared_variable(dynamic_shared_bytes, alignment, element, name, 0);
}

}  // namespace cuda_emulator

using namespace cuda_emulator;
#define API extern "C" __attribute__((visibility("default")))

// Memory that kernels may use: `element` bytes an element (0: unknown). Once there is any, whatever
// else is touched, shared memory and a thread's own aside, is out of bounds.
API void cuda_emulator_add_memory(void* start, size_t bytes, size_t element, const char* name) {
  global_regions.push_back(
      {static_cast<char*>(start), bytes, element, name, false, 0, 1, 2, new_cells(bytes, 2)});
  latest = nullptr;
}

API void cuda_emulator_remove_memory(void* start) {
  for (size_t i = 0; i < global_regions.size(); ++i)
    if (global_regions[i].start == start) {
      global_regions.erase(global_regions.begin() + i);
      break;
    }
  latest = nullptr;
}

// What -fsanitize=thread calls before each access of the kernels' code.
#define HOOKS(bytes)                                                                         \
  extern "C" void __tsan_read##bytes(void* address) {                                        \
    check_aligned_access(address, bytes, false, __builtin_return_address(0));                \
  }                                                                                          \
  extern "C" void __tsan_write##bytes(void* address) {                                       \
    check_aligned_access(address, bytes, true, __builtin_return_address(0));                 \
  }                                                                                          \
  extern "C" void __tsan_unaligned_read##bytes(void* address) {                              \
    check_access(address, bytes, false, __builtin_return_address(0), current);               \
  }                                                                                          \
  extern "C" void __tsan_unaligned_write##bytes(void* address) {                             \
    check_access(address, bytes, true, __builtin_return_address(0), current);                \
  }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
extern "C" void __tsan_read_range(void* address, size_t bytes) {
  check_access(address, bytes, false, __builtin_return_address(0), current);
}
extern "C" void __tsan_write_range(void* address, size_t bytes) {
  check_access(address, bytes, true, __builtin_return_address(0), current);
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  check_access(from, bytes, false, __builtin_return_address(0), current);
  check_access(to, bytes, true, __builtin_return_address(0), current);
  return memcpy(to, from, bytes);
}
extern "C" void* __tsan_memset(void* to, int value, size_t bytes) {
  check_access(to, bytes, true, __builtin_return_address(0), current);
  return memset(to, value, bytes);
}
