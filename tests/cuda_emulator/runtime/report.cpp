// Errors, with the lines of the source that they come from.
#include "machine.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <string>

extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" const char _end[] __attribute__((visibility("hidden")));

namespace cuda_emulator {

char error[8192];

namespace {

std::string line_of(const std::string& file, int number) {
  std::string line;
  if (FILE* stream = fopen(file.c_str(), "r")) {
    char* text = nullptr;
    size_t room = 0;
    for (int i = 0; i < number && getline(&text, &room, stream) >= 0; ++i)
      if (i + 1 == number) line = text;
    free(text);
    fclose(stream);
  }
  const char* blank = " \t\r\n";
  if (line.find_first_not_of(blank) == std::string::npos) return "";
  line = line.substr(line.find_first_not_of(blank));
  return line.substr(0, line.find_last_not_of(blank) + 1);
}

// file:line of an address in this library. Of inlined calls the outermost counts: the kernel's.
std::string look_up(Site site) {
  static std::map<Site, std::string> known;
  const auto found = known.find(site);
  if (found != known.end()) return found->second;
  Dl_info info;
  std::string last = "?:0";
  if (dladdr(__ehdr_start, &info)) {
    char command[4400];
    snprintf(command, sizeof command, "addr2line -i -e '%s' 0x%x", info.dli_fname,
             offset_of(site) - 1);
    if (FILE* pipe = popen(command, "r")) {
      char line[4400];
      while (fgets(line, sizeof line, pipe))
        if (strchr(line, ':') && line[0] != '?') last = line;
      pclose(pipe);
    }
    last = last.substr(0, last.find_first_of(" \n"));  // drops "(discriminator 2)"
  }
  return known[site] = last;
}

}  // namespace

uint32_t offset_of(Site site) {
  return static_cast<uint32_t>(static_cast<const char*>(site) - __ehdr_start);
}

Site site_of(uint32_t offset) { return __ehdr_start + offset; }

bool in_image(const void* address) { return address >= __ehdr_start && address < _end; }

bool same_line(Site a, Site b) { return a == b || look_up(a) == look_up(b); }

Place place(Site site) {
  Place made;
  const std::string found = look_up(site);
  const size_t colon = found.rfind(':'), slash = found.rfind('/');
  const std::string file = found.substr(0, colon);
  const std::string line = line_of(file, atoi(found.c_str() + colon + 1));
  const std::string name = slash == std::string::npos ? found : found.substr(slash + 1);
  snprintf(made.text, sizeof made.text, "%s: %s", name.c_str(), line.c_str());
  return made;
}

void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error, sizeof error, format, arguments);
  va_end(arguments);
  leave_launch();
}

}  // namespace cuda_emulator

// What ended the last launch that returned 1.
extern "C" __attribute__((visibility("default"))) const char* cuda_emulator_error() {
  return cuda_emulator::error;
}
