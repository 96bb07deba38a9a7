#include "base/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace hayfork {
namespace {

[[noreturn]] void throw_open_error(const std::filesystem::path& path, ErrorSubject subject, int error) {
  throw Error(ErrorCode::not_found, subject, fmt::format("cannot read {}", path.string()),
              {.why = std::strerror(error),
               .next = error == EACCES ? "check the file's permissions" : "check the path's spelling"});
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
  if (!S_ISREG(status.st_mode)) throw_open_error(path, subject, S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;  // mmap refuses empty files; an empty view says the same
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) {
    throw Error(ErrorCode::resource, ErrorSubject::memory, fmt::format("cannot map {}", path.string()),
                {.why = std::strerror(errno)});
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

std::string read_file(const std::filesystem::path& path, ErrorSubject subject, size_t limit_bytes) {
  const FileMap map(path, subject);
  if (map.bytes().size() > limit_bytes) {
    throw Error(ErrorCode::corrupt, subject, fmt::format("{} is too large", path.string()),
                {.why = fmt::format("{} bytes, at most {} are expected here", map.bytes().size(), limit_bytes)});
  }
  return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  const std::filesystem::path temporary = path.string() + fmt::format(".tmp{}", ::getpid());
  const auto fail = [&](const char* action) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw Error(ErrorCode::resource, ErrorSubject::disk, fmt::format("cannot {} {}", action, path.string()),
                {.why = std::strerror(error), .next = "check free space and permissions of the folder"});
  };
  Descriptor file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  if (file.fd < 0) fail("create");
  for (size_t done = 0; done < content.size();) {
    const ssize_t n = ::write(file.fd, content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("write");
    done += static_cast<size_t>(n);
  }
  if (::fsync(file.fd) != 0 && errno != EINVAL && errno != EROFS) fail("flush");
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail("replace");
}

}  // namespace hayfork
