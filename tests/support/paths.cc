#include "tests/support/paths.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace hayfork::test {

std::filesystem::path source_dir() {
  const char* dir = std::getenv("HAYFORK_SOURCE_DIR");
  return dir != nullptr ? dir : std::filesystem::current_path();
}

std::filesystem::path binary() {
  const char* path = std::getenv("HAYFORK_BINARY");
  return path != nullptr ? path : "hayfork";
}

std::optional<std::filesystem::path> data_path(const std::string& relative) {
  const char* root = std::getenv("HAYFORK_TEST_DATA");
  if (root == nullptr || *root == '\0') return std::nullopt;
  std::filesystem::path path = std::filesystem::path(root) / relative;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "hayfork-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_xz(const std::filesystem::path& path) {
  const std::string command = "xz -dc '" + path.string() + "'";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start xz");
  std::string text;
  char buffer[1 << 16];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  if (::pclose(pipe) != 0) throw std::runtime_error("xz failed on " + path.string());
  return text;
}

void unpack_tar_xz(const std::filesystem::path& archive, const std::filesystem::path& folder) {
  const std::string command = "tar -xJf '" + archive.string() + "' -C '" + folder.string() + "'";
  if (std::system(command.c_str()) != 0) throw std::runtime_error("cannot unpack " + archive.string());
}

}  // namespace hayfork::test
