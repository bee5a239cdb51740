// Runs an artifact that `tfgraph compile MODEL --shared` made, with TVM's runtime library alone:
//   ./main ARTIFACT INPUTS.safetensors [SYMBOL=SIZE ...] [--all]
// and prints the first numbers of its outputs, or all. docs/deploy.md says how to build it, and
// what it leaves out.
#include <tvm/ffi/extra/module.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tensors.h"

using Entry = json::Object;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  CHECK(file) << "cannot read " << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

int main(int count, char** arguments) try {
  CHECK(count > 2) << "expected ARTIFACT INPUTS.safetensors [SYMBOL=SIZE ...] [--all]";
  std::string folder = arguments[1], code = folder + "/kernels/model.so";
  auto manifest = json::Parse(Read(folder + "/manifest.json")).cast<Entry>();
  CHECK(manifest["format"].cast<int>() == 1) << "another format of artifact";
  std::string cpu = Read("/proc/cpuinfo");
  std::replace(cpu.begin(), cpu.end(), '\n', ' ');
  for (auto name : manifest["cpu"].cast<Entry>()["features"].cast<Array<String>>())
    CHECK(cpu.find(" " + name + " ") != cpu.npos) << "this CPU has no " << name;
  CHECK(access(code.c_str(), R_OK) == 0) << "there is no " << code << ": compile with --shared";
  auto library = Module::LoadFromFile(code);
  auto machine = library->GetFunction("vm_load_executable").value()().cast<Module>();
  machine->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, 1);

  std::vector<Any> given;
  auto give = [&](const char* key, const std::string& path) {  // the tensors that `key` lists
    auto tensors = ReadTensors(path);
    for (auto port : manifest[key].cast<Array<Entry>>()) {
      auto name = port["name"].cast<String>();
      CHECK(tensors.count(name)) << path << " has no tensor " << name;
      given.push_back(tensors[name]);
    }
  };
  give("inputs", arguments[2]);
  for (auto symbol : manifest["scalars"].cast<Array<String>>()) {  // sizes that no input tells
    std::string start = symbol + "=";
    auto size = std::find_if(arguments + 3, arguments + count, [&](std::string word) {
      return word.compare(0, start.size(), start) == 0;
    });
    CHECK(size != arguments + count) << "expected " << start << "SIZE";
    given.push_back(std::stol(*size + start.size()));
  }
  give("weights", folder + "/weights.safetensors");

  Any result;
  std::vector<AnyView> views(given.begin(), given.end());
  machine->GetFunction("main").value().CallPacked(views.data(), views.size(), &result);
  auto one = result.as<Tensor>();
  auto outputs = one ? Array<Tensor>{*one} : result.cast<Array<Tensor>>();
  auto ports = manifest["outputs"].cast<Array<Entry>>();
  bool all = std::string(arguments[count - 1]) == "--all";
  for (size_t i = 0; i < outputs.size(); ++i)
    Print(ports[i]["name"].cast<std::string>(), outputs[i], all ? INT64_MAX : 5);
} catch (const std::exception& error) {
  return std::fprintf(stderr, "error: %s\n", error.what()), 1;
}
