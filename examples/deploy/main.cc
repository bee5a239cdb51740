// Runs an artifact that `tfgraph compile MODEL --shared` made (docs/deploy.md: how to build this):
//   ./main ARTIFACT INPUTS.safetensors OUTPUTS.bin [SYMBOL=SIZE ...]
#include <fcntl.h>
#include <sys/mman.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#define CHECK(what) TVM_FFI_CHECK(what, ValueError)
using namespace tvm::ffi;
using Entry = json::Object;

// Appends the tensors that `ports` list of a safetensors file. They live as long as the program.
void Append(const Any& ports, const std::string& path, std::vector<Any>* tensors) {
  uint64_t size = std::filesystem::file_size(path);
  int file = open(path.c_str(), O_RDONLY);
  void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  auto length = static_cast<uint64_t*>(map);  // of the header
  CHECK(map != MAP_FAILED && size > 8 && *length <= size - 8) << path << " is no safetensors file";
  char *text = static_cast<char*>(map) + 8, *data = text + *length;
  auto header = json::Parse(String(text, *length)).cast<Entry>();
  for (auto port : ports.cast<Array<Entry>>()) {
    auto name = port["name"].cast<String>();
    CHECK(header.count(name)) << path << " has no tensor " << name;
    auto entry = header[name].cast<Entry>();
    std::string type = port["dtype"].cast<String>(), kind = entry["dtype"].cast<String>();  // I8
    DLDataType dtype = StringToDLDataType(type);
    auto shape = new Shape(entry["shape"].cast<Array<int64_t>>());
    auto range = entry["data_offsets"].cast<Array<int64_t>>();
    int64_t bytes = GetDataSize(shape->Product(), dtype), last = size - 8 - *length;
    bool fits = 0 <= range[0] && range[0] + bytes == range[1] && range[1] <= last;
    CHECK(fits && toupper(type[0]) == kind[0]) << path << ": " << name << " is no whole " << type;
    void* at = data + range[0];  // copied where it is not aligned as kernels need it
    if (uintptr_t(at) % 64) at = std::memcpy(std::aligned_alloc(64, bytes), at, bytes);
    DLTensor view{at, {kDLCPU, 0}, int(shape->size()), dtype, const_cast<int64_t*>(shape->data())};
    tensors->push_back(Tensor::FromDLPack(new DLManagedTensor{view}, 64));
  }
}

int main(int count, char** arguments) try {
  CHECK(count > 3) << "expected ARTIFACT INPUTS.safetensors OUTPUTS.bin [SYMBOL=SIZE ...]";
  std::string folder = arguments[1], code = folder + "/kernels/model.so";
  CHECK(std::filesystem::exists(code)) << "there is no " << code << ": compile with --shared";
  std::ifstream text(folder + "/manifest.json"), info("/proc/cpuinfo");
  auto manifest = json::Parse(std::string(std::istreambuf_iterator<char>(text), {})).cast<Entry>();
  CHECK(manifest["format"].cast<int>() == 1) << "another format of artifact";
  std::vector<std::string> cpu(std::istream_iterator<std::string>(info), {});
  for (auto feature : manifest["cpu"].cast<Entry>()["features"].cast<Array<String>>())
    CHECK(std::count(cpu.begin(), cpu.end(), feature)) << "this CPU has no " << feature;
  auto library = Module::LoadFromFile(code);
  auto machine = library->GetFunction("vm_load_executable").value()().cast<Module>();
  machine->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, 1);

  std::vector<Any> given;
  Append(manifest["inputs"], arguments[2], &given);
  for (auto symbol : manifest["scalars"].cast<Array<String>>()) {  // sizes that no input tells
    int i = 4;
    while (i < count && std::string(arguments[i]).rfind(symbol + "=", 0) != 0) ++i;
    CHECK(i < count) << "expected " << symbol << "=SIZE";
    given.push_back(std::stol(arguments[i] + symbol.size() + 1));
  }
  Append(manifest["weights"], folder + "/weights.safetensors", &given);
  std::vector<AnyView> views(given.begin(), given.end());
  Any result;
  machine->GetFunction("main").value().CallPacked(views.data(), views.size(), &result);
  auto outputs = result.as<Tensor>() ? Array{result.cast<Tensor>()} : result.cast<Array<Tensor>>();
  std::ofstream file(arguments[3], std::ios::binary);
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto name = manifest["outputs"].cast<Array<Entry>>()[i]["name"].cast<String>();
    Array<int64_t> shape(outputs[i].shape().begin(), outputs[i].shape().end());
    std::cout << name << ": " << outputs[i].dtype() << json::Stringify(shape) << "\n";
    file.write(static_cast<char*>(outputs[i].data_ptr()), GetDataSize(outputs[i]));
  }
  CHECK(file.flush()) << "cannot write " << arguments[3];
} catch (const std::exception& error) {
  return std::cerr << "error: " << error.what() << "\n", 1;
}
