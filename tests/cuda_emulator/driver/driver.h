// What the two fake libraries share: the memory of the device, which libcuda.so.1 holds.
#pragma once

#include <stddef.h>

extern "C" {

void fake_log(const char* line);  // a line more in the file that FAKE_CUDA_LOG names
int fake_device_count();
void fake_use_context();          // the thread has a context from now on
void* fake_allocate(size_t size); // nullptr where there is too little
bool fake_free(void* at);
size_t fake_free_memory();
size_t fake_total_memory();
int fake_holds(const void* at, size_t size);
void fake_open();                 // device memory may be accessed until
void fake_close();

struct LaunchConfig {             // CUlaunchConfig of cuda.h
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};

}  // extern "C"
