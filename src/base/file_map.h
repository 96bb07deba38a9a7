// A file mapped read-only. Views into it live as long as the FileMap. Reading beyond a file that another process
// truncates raises SIGBUS; checkpoints are expected to stay still while they are loaded.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/error.h"

namespace hayfork {

class FileMap {
 public:
  // Throws: not_found (no such file, no permission), resource, unsupported. `subject` says whose file it is.
  FileMap(const std::filesystem::path& path, ErrorSubject subject);
  ~FileMap();
  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&& other) noexcept;
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  // Tells the kernel that [offset, offset+length) will not be read again soon: its pages leave the resident set.
  void drop(size_t offset, size_t length) const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Whole file as text. Throws as FileMap; `limit_bytes` guards against absurd sizes (corrupt when exceeded).
std::string read_file(const std::filesystem::path& path, ErrorSubject subject, size_t limit_bytes = size_t{1} << 30);

// Writes to a temporary name beside `path`, flushes to disk, renames: the file is whole or absent.
// Throws: resource/disk with errno's text.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace hayfork
