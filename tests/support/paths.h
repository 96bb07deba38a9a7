// Where tests find what they read: the source tree, the built program, and the optional folder of large golden data.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace hayfork::test {

std::filesystem::path source_dir();  // the repository root
std::filesystem::path binary();      // the hayfork program of this build
// HAYFORK_TEST_DATA/<relative>, if the variable is set and the path exists.
std::optional<std::filesystem::path> data_path(const std::string& relative);
// A fresh empty folder, removed when the object goes away.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};
// Whole .xz file, decompressed by the xz program. Throws std::runtime_error when that fails.
std::string read_xz(const std::filesystem::path& path);
// Unpacks a .tar.xz into `folder` with the tar program. Throws std::runtime_error when that fails.
void unpack_tar_xz(const std::filesystem::path& archive, const std::filesystem::path& folder);

}  // namespace hayfork::test

// Skips a test that needs the large golden data, saying what is missing.
#define HAY_NEED_DATA(variable, relative)                                                                       \
  const auto variable##_found = ::hayfork::test::data_path(relative);                                           \
  if (!variable##_found) GTEST_SKIP() << "needs " << relative << " under HAYFORK_TEST_DATA, which is not here"; \
  const std::filesystem::path& variable = *variable##_found
