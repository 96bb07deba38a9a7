#include "base/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/files.h"

namespace hayfork {
namespace {

[[noreturn]] void throw_open_error(const std::filesystem::path& path, ErrorSubject subject, int error) {
  throw Error(ErrorCode::not_found, subject, fmt::format("cannot read {}", path.string()),
              {.why = std::strerror(error),
               .next = error == EACCES   ? "check the file's permissions"
                       : error == EISDIR ? "name a file in it"
                                         : "check the path's spelling"});
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

FileMap::FileMap(const std::filesystem::path& path, ErrorSubject subject) : path_(path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) throw_open_error(path, subject, errno);
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) throw_open_error(path, subject, errno);
  if (S_ISDIR(status.st_mode)) throw_open_error(path, subject, EISDIR);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::not_found, subject, fmt::format("{} is no regular file", path.string()),
                {.why = "it is to be mapped into memory", .next = "copy its content to a file"});
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;  // mmap refuses empty files; an empty view says the same
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    if (error == ENOMEM) {
      throw Error(ErrorCode::resource, ErrorSubject::memory, fmt::format("cannot map {}", path.string()),
                  {.why = std::strerror(error), .next = "raise the limit of address space"});
    }
    throw Error(ErrorCode::unsupported, subject, fmt::format("cannot map {}", path.string()),
                {.why = fmt::format("its file system refuses to: {}", std::strerror(error)),
                 .next = "copy it to a local disk"});
  }
  data_ = static_cast<const std::byte*>(address);
}

FileMap::~FileMap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

FileMap::FileMap(FileMap&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

FileMap& FileMap::operator=(FileMap&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void FileMap::drop(size_t offset, size_t length) const {
  static const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;  // only whole pages inside the range
  const size_t end = std::min(offset + length, size_) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

bool file_exists(const std::filesystem::path& path, ErrorSubject subject) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  throw_open_error(path, subject, errno);
}

bool folder_exists(const std::filesystem::path& path, ErrorSubject subject) {
  std::error_code ignored;
  return file_exists(path, subject) && std::filesystem::is_directory(path, ignored);
}

// Reads, rather than maps: pipes can be read too, and a file that shrinks meanwhile ends early instead of raising
// SIGBUS.
std::string read_file(const std::filesystem::path& path, ErrorSubject subject, size_t limit_bytes) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) throw_open_error(path, subject, errno);
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) throw_open_error(path, subject, errno);
  std::string text;
  const auto size = static_cast<uint64_t>(std::max<int64_t>(status.st_size, 0));
  if (S_ISREG(status.st_mode) && size <= limit_bytes) text.reserve(size);
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(file.fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_open_error(path, subject, errno);
    if (n == 0) return text;
    if (text.size() + static_cast<size_t>(n) > limit_bytes || size > limit_bytes) {
      throw Error(ErrorCode::corrupt, subject, fmt::format("{} is too large", path.string()),
                  {.why = fmt::format("it has more than the {} bytes that are expected here", limit_bytes),
                   .next = "check that it is the file you mean"});
    }
    text.append(buffer, static_cast<size_t>(n));
  }
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  std::error_code ignored;
  const std::filesystem::path canonical = std::filesystem::canonical(path, ignored);
  target_ = canonical.empty() ? path : canonical;
  replaces_ = canonical.empty() || std::filesystem::is_regular_file(canonical, ignored);
  written_ = replaces_ ? target_.string() + fmt::format(".tmp{}", ::getpid()) : target_.string();
  fd_ = ::open(written_.c_str(), O_WRONLY | O_CLOEXEC | (replaces_ ? O_CREAT | O_TRUNC : 0), 0644);
  if (fd_ < 0) fail("create");
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (replaces_) ::unlink(written_.c_str());
}

void AtomicFile::fail(const char* action) {
  const int error = errno;
  throw Error(ErrorCode::resource, ErrorSubject::disk, fmt::format("cannot {} {}", action, path_.string()),
              {.why = std::strerror(error), .next = "check free space and permissions of the folder"});
}

void AtomicFile::write(const void* data, size_t n_bytes) {
  for (size_t done = 0; done < n_bytes;) {
    const ssize_t n = ::write(fd_, static_cast<const char*>(data) + done, n_bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("write");
    done += static_cast<size_t>(n);
  }
}

void AtomicFile::commit() {
  if (replaces_) {
    if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) fail("flush");
    if (::rename(written_.c_str(), target_.c_str()) != 0) fail("replace");
  }
  ::close(fd_);
  fd_ = -1;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

}  // namespace hayfork
