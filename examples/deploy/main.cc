// Runs an artifact that `tfgraph compile MODEL --shared` made, with TVM's runtime library alone:
//   ./main ARTIFACT INPUTS.safetensors [SYMBOL=SIZE ...]
// and prints its outputs. docs/deploy.md says how to build it, and what it leaves out.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>

#include <cstring>
#include <fstream>

using namespace tvm::ffi;
using Entry = json::Object;

struct View {  // bytes of a mapped file, copied where they are not aligned as kernels need it
  char* bytes;
  void AllocData(DLTensor* tensor) {
    size_t size = GetDataSize(*tensor), padded = (size + 63) / 64 * 64;
    tensor->data = reinterpret_cast<uintptr_t>(bytes) % 64 ? std::aligned_alloc(64, padded) : bytes;
    if (tensor->data != bytes) std::memcpy(tensor->data, bytes, size);
  }
  void FreeData(DLTensor* tensor) { if (tensor->data != bytes) std::free(tensor->data); }
};

std::string Read(const std::string& path) {
  std::ifstream file(path);
  TVM_FFI_CHECK(file, RuntimeError) << "cannot read " << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

Map<String, Tensor> ReadTensors(const std::string& path) {
  struct stat status;
  int file = open(path.c_str(), O_RDONLY);
  TVM_FFI_CHECK(file >= 0 && fstat(file, &status) == 0, RuntimeError) << "cannot read " << path;
  void* map = mmap(nullptr, status.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  auto* start = static_cast<char*>(map) + 8;  // of the header, after its length
  uint64_t length = *static_cast<uint64_t*>(map);
  Map<String, Tensor> tensors;
  for (auto [name, value] : json::Parse(std::string(start, length)).cast<Entry>()) {
    auto entry = value.cast<Entry>();
    std::string type = entry["dtype"].cast<std::string>();  // such as F32
    uint8_t code = type[0] == 'F' ? kDLFloat : type[0] == 'I' ? kDLInt : kDLUInt;
    DLDataType dtype{code, static_cast<uint8_t>(std::stoi(type.substr(1))), 1};
    View view{start + length + entry["data_offsets"].cast<Array<int64_t>>()[0]};
    Shape shape(entry["shape"].cast<Array<int64_t>>());
    tensors.Set(name.cast<String>(), Tensor::FromNDAlloc(view, shape, dtype, {kDLCPU, 0}));
  }
  return tensors;
}

int main(int count, char** arguments) try {
  TVM_FFI_CHECK(count > 2, ValueError) << "expected ARTIFACT INPUTS.safetensors [SYMBOL=SIZE ...]";
  std::string folder = arguments[1], cpu = Read("/proc/cpuinfo");
  auto manifest = json::Parse(Read(folder + "/manifest.json")).cast<Entry>();
  TVM_FFI_CHECK(manifest["format"].cast<int>() == 1, ValueError) << "another format of artifact";
  for (auto name : manifest["cpu"].cast<Entry>()["features"].cast<Array<String>>())
    TVM_FFI_CHECK(cpu.find(" " + name) != cpu.npos, ValueError) << "this CPU has no " << name;
  auto library = Module::LoadFromFile(folder + "/kernels/model.so");
  auto machine = library->GetFunction("vm_load_executable").value()().cast<Module>();
  machine->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, 1);
  std::vector<Any> given;  // the inputs, the sizes that no input's shape tells, the weights
  auto inputs = ReadTensors(arguments[2]), weights = ReadTensors(folder + "/weights.safetensors");
  for (auto input : manifest["inputs"].cast<Array<Entry>>())
    given.push_back(inputs.at(input["name"].cast<String>()));
  for (int i = 3; i < count; ++i) given.push_back(std::stol(std::strchr(arguments[i], '=') + 1));
  for (auto weight : manifest["weights"].cast<Array<Entry>>())
    given.push_back(weights.at(weight["name"].cast<String>()));
  Any result;
  std::vector<AnyView> views(given.begin(), given.end());
  machine->GetFunction("main").value().CallPacked(views.data(), views.size(), &result);
  auto one = result.as<Tensor>();
  for (const Tensor& output : one ? Array<Tensor>{*one} : result.cast<Array<Tensor>>())
    for (int64_t i = 0; i < output.numel(); ++i)
      std::printf("%.9g\n", static_cast<float*>(output.data_ptr())[i]);
} catch (const std::exception& error) {
  return std::fprintf(stderr, "error: %s\n", error.what()), 1;
}
