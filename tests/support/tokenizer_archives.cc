#include "tests/support/tokenizer_archives.h"

#include <cstdlib>
#include <stdexcept>

#include "tests/support/paths.h"

namespace hayfork::test {

std::unique_ptr<engine::Tokenizer> load_archived_tokenizer(const std::string& name) {
  const auto archive = data_path("tokenizers/" + name + ".tar.xz");
  if (!archive) throw std::runtime_error("no archive of tokenizer " + name);
  const TempDir folder;
  const std::string command = "tar xJf '" + archive->string() + "' -C '" + folder.path().string() + "'";
  if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
  return engine::Tokenizer::load(folder.path() / name);
}

}  // namespace hayfork::test
