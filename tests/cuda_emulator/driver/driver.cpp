// A libcuda.so.1 for machines without a GPU: what TVM's CUDA runtime and tfgraph's look-out for
// devices call, and no more. A "cubin" is a file that names a library of the host, in which
// emulated kernels lie; see __init__.py.
//
// Device memory is memory of the host that only kernels and copies may touch: in between it has no
// access, so that who takes a device's pointer for the host's crashes. Each allocation is filled
// with NaN and stands between margins of NaN, which are looked at after each launch.
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>

namespace {

constexpr size_t kArena = size_t{4} << 30;  // addresses; pages are taken when they are written
constexpr size_t kAlignment = 256, kMargin = 512;

std::recursive_mutex lock;
char* arena = nullptr;
size_t taken = 0;                 // bytes of the arena in use: addresses are never used again
std::map<char*, size_t> memory;   // allocations that live
int open_count = 0;               // who may access the arena now
thread_local bool has_context = false;
thread_local std::string note;

int number(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text == nullptr ? otherwise : atoi(text);
}

size_t total_memory() { return static_cast<size_t>(number("FAKE_CUDA_MEGABYTES", 2048)) << 20; }

size_t used_memory() {
  size_t sum = 0;
  for (auto& [at, size] : memory) sum += size;
  return sum;
}

int capability() { return number("FAKE_CUDA_CAPABILITY", 80); }  // 86 is 8.6

bool is_whole(char* at, size_t size) {
  for (size_t i = 0; i < kMargin; ++i)
    if (at[-1 - static_cast<long>(i)] != '\xff' || at[size + i] != '\xff') return false;
  return true;
}

struct Kernel {
  std::string name;
  int (*launch)(const unsigned*, const unsigned*, unsigned, void**);
  const char* (*error)();
  int most_shared;
};

struct Module {
  void* library;
  std::map<std::string, Kernel> kernels;
};

}  // namespace

extern "C" {

void fake_log(const char* line) {
  const char* path = getenv("FAKE_CUDA_LOG");
  if (path == nullptr) return;
  std::lock_guard<std::recursive_mutex> guard(lock);
  FILE* file = fopen(path, "a");
  if (file == nullptr) return;
  fprintf(file, "%s\n", line);
  fclose(file);
}

int fake_device_count() { return number("FAKE_CUDA_DEVICES", 1); }
void fake_use_context() { has_context = true; }
size_t fake_free_memory() { return total_memory() - used_memory(); }
size_t fake_total_memory() { return total_memory(); }

void fake_open() {
  lock.lock();
  if (arena == nullptr)
    arena = static_cast<char*>(mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (open_count++ == 0 && taken > 0) mprotect(arena, taken, PROT_READ | PROT_WRITE);
}

void fake_close() {
  if (--open_count == 0 && taken > 0) mprotect(arena, taken, PROT_NONE);
  lock.unlock();
}

void* fake_allocate(size_t size) {
  fake_open();
  size_t start = taken + kMargin, rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
  size_t end = (start + rounded + kMargin + 4095) / 4096 * 4096;
  char* at = nullptr;
  if (used_memory() + size <= total_memory() && end <= kArena) {
    mprotect(arena + taken, end - taken, PROT_READ | PROT_WRITE);
    memset(arena + taken, 0xff, end - taken);
    at = arena + start;
    memory[at] = size;
    taken = end;
  }
  fake_close();
  return at;
}

bool fake_free(void* at) {
  fake_open();
  auto found = memory.find(static_cast<char*>(at));
  bool known = found != memory.end();
  if (known) {
    memset(found->first, 0xff, found->second);  // who reads it later sees NaN
    memory.erase(found);
  }
  fake_close();
  return known;
}

// Whether [at, at + size) lies in one allocation; 0 where it is no device memory at all.
int fake_holds(const void* at, size_t size) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  const char* first = static_cast<const char*>(at);
  if (arena == nullptr || first < arena || first >= arena + kArena) return 0;
  auto next = memory.upper_bound(const_cast<char*>(first));
  if (next == memory.begin()) return -1;
  auto [start, length] = *--next;
  return first + size <= start + length ? 1 : -1;
}

int cuInit(unsigned) {
  int forced = number("FAKE_CUDA_INIT", 0);  // 100: no device; 999: anything else
  return forced != 0 ? forced : fake_device_count() == 0 ? 100 : 0;
}

int cuDriverGetVersion(int* version) {
  *version = number("FAKE_CUDA_DRIVER", 13000);
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = fake_device_count();
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < fake_device_count() ? 0 : 101;
}

int cuDeviceGetName(char* name, int length, int) {
  const char* given = getenv("FAKE_CUDA_NAME");
  snprintf(name, static_cast<size_t>(length), "%s", given == nullptr ? "Fake GPU" : given);
  return 0;
}

int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = total_memory();
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 1: *value = 1024; break;              // threads a block
    case 8: *value = 48 << 10; break;          // bytes of shared memory a block
    case 10: *value = 32; break;               // threads of a warp
    case 12: *value = 65536; break;            // registers a block
    case 16: *value = 4; break;                // multiprocessors
    case 75: *value = capability() / 10; break;
    case 76: *value = capability() % 10; break;
    case 97: *value = 163 << 10; break;        // bytes of shared memory that a block may opt in to
    default: *value = 0;
  }
  return 0;
}

int cuGetErrorName(int code, const char** name) {
  note = "CUDA_ERROR_" + std::to_string(code);
  *name = note.c_str();
  return 0;
}

int cuGetErrorString(int code, const char** text) { return cuGetErrorName(code, text); }

// Either "FAKE-CUBIN sm_80 PATH" or, as PTX for a version of the language and an architecture,
// "//FAKE-PTX 9.0 sm_80 PATH".
int cuModuleLoadData(void** module, const void* image) {
  if (!has_context) return 201;
  char path[4096];
  int arch = 0, major = 0, minor = 0;
  const char* text = static_cast<const char*>(image);
  if (sscanf(text, "FAKE-CUBIN sm_%d %4095s", &arch, path) == 2) {
    if (arch / 10 != capability() / 10 || arch > capability()) return 209;  // no binary for the GPU
  } else if (sscanf(text, "//FAKE-PTX %d.%d sm_%d %4095s", &major, &minor, &arch, path) == 4) {
    if (major * 1000 + minor * 10 > number("FAKE_CUDA_PTX", 9000)) return 222;  // unsupported PTX
    if (arch > capability()) return 218;                                      // invalid PTX
  } else {
    return 200;  // invalid image
  }
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fprintf(stderr, "fake CUDA: %s\n", dlerror());
    return 300;
  }
  *module = new Module{library, {}};
  fake_log(("module " + std::string(text[0] == '/' ? "ptx" : "cubin") + " sm_" + std::to_string(arch)).c_str());
  return 0;
}

int cuModuleUnload(void* module) {
  Module* m = static_cast<Module*>(module);
  dlclose(m->library);
  delete m;
  return 0;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
  Module* m = static_cast<Module*>(module);
  std::string entry = std::string("cuda_emulator_launch_") + name;
  void* found = dlsym(m->library, entry.c_str());
  void* error = dlsym(m->library, "cuda_emulator_error");
  if (found == nullptr || error == nullptr) return 500;
  std::lock_guard<std::recursive_mutex> guard(lock);
  m->kernels[name] = Kernel{name, reinterpret_cast<decltype(Kernel::launch)>(found),
                            reinterpret_cast<decltype(Kernel::error)>(error), 48 << 10};
  *function = &m->kernels[name];
  return 0;
}

int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute == 8) static_cast<Kernel*>(function)->most_shared = value;
  return value <= 163 << 10 ? 0 : 1;
}

int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** arguments, void**) {
  if (!has_context) return 201;
  Kernel* kernel = static_cast<Kernel*>(function);
  const unsigned grid[3] = {config->grid[0], config->grid[1], config->grid[2]};
  const unsigned block[3] = {config->block[0], config->block[1], config->block[2]};
  if (grid[0] * static_cast<size_t>(grid[1]) * grid[2] == 0 || grid[1] > 65535 || grid[2] > 65535) return 1;
  if (static_cast<int>(config->shared_bytes) > kernel->most_shared) return 1;
  fake_open();
  int code = 0;
  if (kernel->launch(grid, block, config->shared_bytes, arguments) != 0) {
    code = 719;  // launch failed
    fprintf(stderr, "fake CUDA: %s: %s\n", kernel->name.c_str(), kernel->error());
  }
  for (auto& [at, size] : memory) {
    if (is_whole(at, size)) continue;
    fprintf(stderr, "fake CUDA: %s wrote outside of an allocation of %zu bytes\n", kernel->name.c_str(), size);
    code = 700;  // illegal address
  }
  fake_close();
  fake_log(("launch " + kernel->name).c_str());
  return code;
}

int cuTensorMapEncodeTiled(...) { return 801; }  // not supported

}  // extern "C"
