// The tensors of a safetensors file, mapped, and a tensor as a line of text.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/tvm_ffi.h>

#include <cstring>

#define CHECK(what) TVM_FFI_CHECK(what, ValueError)

using namespace tvm::ffi;

struct View {  // bytes of a mapped file, copied where they are not aligned as kernels need it
  char* bytes;
  void AllocData(DLTensor* tensor) {
    size_t size = GetDataSize(*tensor), padded = (size + 63) / 64 * 64;
    tensor->data = reinterpret_cast<uintptr_t>(bytes) % 64 ? std::aligned_alloc(64, padded) : bytes;
    if (tensor->data != bytes) std::memcpy(tensor->data, bytes, size);
  }
  void FreeData(DLTensor* tensor) { if (tensor->data != bytes) std::free(tensor->data); }
};

DLDataType DTypeOf(const std::string& name) {  // such as F32, I64, U8, BOOL
  if (name == "BOOL") return {kDLBool, 8, 1};
  uint8_t code = name[0] == 'F' ? kDLFloat : name[0] == 'I' ? kDLInt : kDLUInt;
  return {code, static_cast<uint8_t>(std::stoi(name.substr(1))), 1};
}

Map<String, Tensor> ReadTensors(const std::string& path) {
  struct stat status;
  int file = open(path.c_str(), O_RDONLY);
  CHECK(file >= 0 && fstat(file, &status) == 0) << "cannot read " << path;
  uint64_t size = status.st_size, length = 0;
  void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  if (map != MAP_FAILED && size >= 8) std::memcpy(&length, map, 8);
  CHECK(0 < length && length <= size - 8) << path << " is no whole safetensors file";
  char* header = static_cast<char*>(map) + 8;
  Map<String, Tensor> tensors;
  for (auto [key, value] : json::Parse(std::string(header, length)).cast<json::Object>()) {
    std::string name = key.cast<std::string>();
    if (name == "__metadata__") continue;
    auto entry = value.cast<json::Object>();
    DLDataType dtype = DTypeOf(entry["dtype"].cast<std::string>());
    Shape shape(entry["shape"].cast<Array<int64_t>>());
    auto range = entry["data_offsets"].cast<Array<int64_t>>();
    int64_t last = size - 8 - length, bytes = shape.Product() * dtype.bits / 8;
    CHECK(0 <= range[0] && range[1] <= last && range[1] - range[0] == bytes)
        << path << ": " << name << " does not fit";
    View view{header + length + range[0]};
    tensors.Set(name, Tensor::FromNDAlloc(view, shape, dtype, {kDLCPU, 0}));
  }
  return tensors;
}

// `name: dtype[shape] = numbers`, of which there are `most` at most.
void Print(const std::string& name, const Tensor& tensor, int64_t most) {
  DLDataType type = tensor.dtype();
  std::printf("%s: %s[", name.c_str(), std::string(DLDataTypeToString(type)).c_str());
  for (int i = 0; i < tensor.ndim(); ++i) std::printf(i ? ", %ld" : "%ld", tensor.size(i));
  std::printf("] =");
  for (int64_t i = 0; i < std::min(tensor.numel(), most); ++i) {
    char* at = static_cast<char*>(tensor.data_ptr()) + i * type.bits / 8;
    int64_t whole = 0;
    std::memcpy(&whole, at, type.bits / 8);
    if (type.code == kDLInt) whole = whole << (64 - type.bits) >> (64 - type.bits);  // its sign
    if (type.code != kDLFloat) std::printf(" %ld", whole);
    else if (type.bits == 32) std::printf(" %.9g", *reinterpret_cast<float*>(at));
    else std::printf(" %.17g", *reinterpret_cast<double*>(at));
  }
  std::printf(tensor.numel() > most ? " ...\n" : "\n");
}
