// cp.async: what is copied is read at once, and lands when its thread waits for it. Until then its
// destination holds NaN, and touching it is an error.
#include "machine.h"

#include <string.h>

#include <vector>

namespace cuda_emulator {

namespace {

struct Copy {
  void* to;
  unsigned size;
  int group;
  char data[16];
};

struct Copies {
  std::vector<Copy> pending;
  int groups;  // committed
};

Copies copies[kMostThreads];

}  // namespace

void forget_copies() {
  for (unsigned i = 0; i < threads; ++i) copies[i].pending.clear(), copies[i].groups = 0;
}

void cp_async(void* shared, const void* global, unsigned size, unsigned bytes) {
  const Site site = __builtin_return_address(0);
  Copies& mine = copies[current];
  Copy copy{shared, size, mine.groups, {}};
  if (bytes > size) fail("cp.async of %u bytes of %u\n  at: %s", bytes, size, place(site).text);
  if (bytes) {
    if (reinterpret_cast<uintptr_t>(global) % size)
      fail("misaligned: cp.async of %u bytes from an address that is no multiple of that\n  at: %s",
           size, place(site).text);
    check_access(global, bytes, false, site, current);
    memcpy(copy.data, global, bytes);
  }
  begin_copy(shared, size, site);
  memset(shared, 0xff, size);
  mine.pending.push_back(copy);
}

void cp_async_commit() { ++copies[current].groups; }

void cp_async_wait(int left) {
  Copies& mine = copies[current];
  std::vector<Copy> later;
  for (const Copy& copy : mine.pending) {
    if (copy.group >= mine.groups - left) {
      later.push_back(copy);
      continue;
    }
    memcpy(copy.to, copy.data, copy.size);
    end_copy(copy.to, copy.size);
  }
  mine.pending.swap(later);
}

}  // namespace cuda_emulator
