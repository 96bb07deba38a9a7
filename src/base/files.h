// Files beside those that are mapped (base/file_map.h): is one there, and writing one so that it is whole or absent.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "base/error.h"

namespace hayfork {

// False when nothing stands at `path`. Throws: not_found when that cannot be told (no permission, links in a circle).
bool file_exists(const std::filesystem::path& path, ErrorSubject subject);
// The same, for a folder.
bool folder_exists(const std::filesystem::path& path, ErrorSubject subject);

// A file that is whole or absent: written under a temporary name beside `path`, flushed and renamed by commit(). A link
// stays a link; what is no regular file (a pipe, /dev/stdout) is written to and never replaced.
// All throw resource/disk with errno's text.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();  // without commit(): leaves nothing behind
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(const void* data, size_t n_bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* action);

  std::filesystem::path path_, target_;
  std::string written_;
  bool replaces_ = true;
  int fd_ = -1;
};

}  // namespace hayfork
