// A library for LD_PRELOAD that makes files look as if they were on a file system with odd manners, chosen by the
// variable HAYFORK_TEST_FS: nfs (statfs says so), no-lock, no-map, no-fsync. Only files whose path holds
// HAYFORK_TEST_FS_PATH are concerned.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool is(const char* manner) {
  const char* chosen = std::getenv("HAYFORK_TEST_FS");
  return chosen != nullptr && std::strstr(chosen, manner) != nullptr;
}

bool concerned(const char* path) {
  const char* part = std::getenv("HAYFORK_TEST_FS_PATH");
  return part != nullptr && std::strstr(path, part) != nullptr;
}

bool concerned(int fd) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = ::readlink(link, path, sizeof path - 1);
  if (n < 0) return false;
  path[n] = '\0';
  return concerned(path);
}

int refuse(int error) {
  errno = error;
  return -1;
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

int control(const char* name, int fd, int command, void* argument) {
  const bool locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK;
  if (locks && is("no-lock") && concerned(fd)) return refuse(ENOLCK);
  return next<int (*)(int, int, ...)>(name)(fd, command, argument);
}

}  // namespace

extern "C" {

int statfs(const char* path, struct statfs* info) {
  const int result = next<int (*)(const char*, struct statfs*)>("statfs")(path, info);
  if (result == 0 && is("nfs") && concerned(path)) info->f_type = 0x6969;
  return result;
}

int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* argument = va_arg(list, void*);
  va_end(list);
  return control("fcntl", fd, command, argument);
}

int fcntl64(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* argument = va_arg(list, void*);
  va_end(list);
  return control("fcntl64", fd, command, argument);
}

void* mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset) {
  if (fd >= 0 && is("no-map") && concerned(fd)) {
    errno = ENODEV;
    return MAP_FAILED;
  }
  return next<void* (*)(void*, size_t, int, int, int, off_t)>("mmap")(address, length, protection, flags, fd, offset);
}

void* mmap64(void* address, size_t length, int protection, int flags, int fd, off64_t offset) {
  return mmap(address, length, protection, flags, fd, offset);
}

int fsync(int fd) {
  if (is("no-fsync") && concerned(fd)) return refuse(EIO);
  return next<int (*)(int)>("fsync")(fd);
}

int fdatasync(int fd) {
  if (is("no-fsync") && concerned(fd)) return refuse(EIO);
  return next<int (*)(int)>("fdatasync")(fd);
}

}  // extern "C"
