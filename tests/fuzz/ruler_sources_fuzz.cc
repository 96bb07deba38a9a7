// Question files, word files and texts from outside, as RULER reads them: hostile bytes give an Error or a value, spans
// of sentences are ordered and lie inside the text.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/file_map.h"
#include "base/utf8.h"
#include "datasets/ruler/punkt.h"
#include "datasets/ruler/sources.h"

namespace {

using namespace hayfork;
using namespace hayfork::datasets;

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("hayfork-fuzz-" + std::to_string(::getpid()));
  Folder() {
    std::filesystem::create_directory(path);
    write_file_atomically(path / "abbrev_types.txt", "dr\nmr\ne.g\n. . ");
    write_file_atomically(path / "collocations.tab", "##number##\tmarks");
    write_file_atomically(path / "sent_starters.txt", "the\nthey");
    write_file_atomically(path / "ortho_context.tab", "the\t46\nmarks\t32");
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

template <typename Load>
void attempt(Load load) {
  try {
    load();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  static const Punkt older = Punkt::load(folder.path), newer = Punkt::load(folder.path, true);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  essay_words(text);
  const std::u32string characters = to_code_points(text);
  for (const Punkt* punkt : {&older, &newer}) {
    size_t last = 0;
    for (const auto& [begin, end] : punkt->sentences(characters)) {
      if (begin < last || end < begin || end > characters.size()) std::abort();
      last = end;
    }
  }
  const std::filesystem::path file = folder.path / "input";
  write_file_atomically(file, text);
  attempt([&] { load_squad(file); });
  attempt([&] { load_hotpot(file); });
  attempt([&] { load_english_words(file); });
  return 0;
}
