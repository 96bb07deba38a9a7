// lm-eval's files of any bytes: a run or an error, and the database stays whole. What stands before the first NUL is
// the results file, the rest the samples of arc_easy.
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/file_map.h"
#include "cli/import/importer.h"

namespace {

std::filesystem::path scratch() {
  static const std::filesystem::path folder = [] {
    std::string name = (std::filesystem::temp_directory_path() / "hayfork-fuzz-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) abort();
    return name;
  }();
  return folder;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 200'000) return 0;
  using namespace hayfork;  // NOLINT: a program of one file
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t nul = std::min(all.find('\0'), all.size());
  cli::ImportOptions options;
  options.files = {scratch() / "results_1.json", scratch() / "samples_arc_easy_1.jsonl"};
  write_file_atomically(options.files[0], all.substr(0, nul));
  write_file_atomically(options.files[1], nul < all.size() ? all.substr(nul + 1) : std::string_view());
  static runs::Store store = runs::Store::open(scratch() / "runs.db", runs::OpenMode::create_or_open);
  try {
    cli::import_lm_eval([]() -> runs::Store& { return store; }, options);
    store.flush();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) __builtin_trap();
  }
  return 0;
}
