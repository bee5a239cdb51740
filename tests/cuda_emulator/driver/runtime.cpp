// A libcudart.so.13 over the fake libcuda.so.1: what TVM's CUDA runtime imports. Everything is done
// when the call returns; graphs are not supported.
#include <stdlib.h>
#include <string.h>

#include <string>

#include "driver.h"

namespace {

thread_local int last_error = 0;
thread_local int device = 0;

int told(int code) {
  if (code != 0) last_error = code;
  return code;
}

int use(int ordinal) {
  if (ordinal < 0 || ordinal >= fake_device_count()) return told(fake_device_count() == 0 ? 100 : 101);
  fake_use_context();
  return 0;
}

// The kinds of cudaMemcpyKind: 1 to the device, 2 from it, 3 on it.
int copy(void* to, const void* from, size_t size, int kind) {
  if (size == 0) return 0;
  int device_to = kind == 1 || kind == 3, device_from = kind == 2 || kind == 3;
  if (fake_holds(to, size) != device_to || fake_holds(from, size) != device_from) return told(1);
  fake_open();
  memcpy(to, from, size);
  fake_close();
  static const char* names[] = {"", "in", "out", "within"};
  fake_log((std::string("copy ") + names[kind] + " " + std::to_string(size)).c_str());
  return 0;
}

}  // namespace

extern "C" {

int cuDeviceGetAttribute(int* value, int attribute, int device);

int cudaGetDeviceCount(int* count) {
  *count = fake_device_count();
  return *count == 0 ? told(100) : 0;
}

int cudaSetDevice(int ordinal) {
  int code = use(ordinal);
  if (code == 0) device = ordinal;
  return code;
}

int cudaGetDevice(int* ordinal) {
  *ordinal = device;
  return 0;
}

int cudaDeviceGetAttribute(int* value, int attribute, int ordinal) {
  return cuDeviceGetAttribute(value, attribute, ordinal);
}

int cudaGetDeviceProperties(void* properties, int) {
  size_t total = fake_total_memory();
  memcpy(static_cast<char*>(properties) + 288, &total, sizeof total);  // totalGlobalMem
  return 0;
}

int cudaMalloc(void** at, size_t size) {
  if (int code = use(device)) return code;
  *at = fake_allocate(size);
  fake_log(("allocate " + std::to_string(size)).c_str());
  return *at == nullptr ? told(2) : 0;
}

int cudaFree(void* at) {
  if (at != nullptr) fake_log("free");
  return at == nullptr || fake_free(at) ? 0 : told(1);
}

int cudaMallocHost(void** at, size_t size) {
  *at = malloc(size);
  return 0;
}

int cudaFreeHost(void* at) {
  free(at);
  return 0;
}

int cudaMemGetInfo(size_t* available, size_t* total) {
  *available = fake_free_memory(), *total = fake_total_memory();
  return 0;
}

int cudaMemcpyAsync(void* to, const void* from, size_t size, int kind, void*) {
  if (int code = use(device)) return code;
  return copy(to, from, size, kind);
}

int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, void*) {
  return copy(to, from, size, 3);
}

const char* cudaGetErrorName(int code) {
  static thread_local std::string name;
  name = code == 2 ? "out of memory" : "cudaError " + std::to_string(code);
  return name.c_str();
}

const char* cudaGetErrorString(int code) { return cudaGetErrorName(code); }

int cudaPeekAtLastError() { return last_error; }

int cudaGetLastError() {
  int code = last_error;
  last_error = 0;
  return code;
}

int cudaStreamCreate(void** stream) {
  *stream = malloc(1);
  return 0;
}

int cudaStreamCreateWithFlags(void** stream, unsigned) { return cudaStreamCreate(stream); }

int cudaStreamDestroy(void* stream) {
  free(stream);
  return 0;
}

int cudaStreamSynchronize(void*) { return 0; }
int cudaStreamWaitEvent(void*, void*, unsigned) { return 0; }
int cudaStreamBeginCapture(void*, int) { return told(801); }
int cudaStreamEndCapture(void*, void**) { return told(801); }
int cudaGraphInstantiate(...) { return told(801); }
int cudaGraphLaunch(void*, void*) { return told(801); }
int cudaGraphDestroy(void*) { return 0; }
int cudaGraphExecDestroy(void*) { return 0; }

int cudaEventCreate(void** event) { return cudaStreamCreate(event); }
int cudaEventDestroy(void* event) { return cudaStreamDestroy(event); }
int cudaEventRecord(void*, void*) { return 0; }
int cudaEventSynchronize(void*) { return 0; }

int cudaEventElapsedTime(float* milliseconds, void*, void*) {
  *milliseconds = 1;
  return 0;
}

}  // extern "C"
