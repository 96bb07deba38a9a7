#include "cli/input.h"

#include <cstdio>

#include "base/file_map.h"

namespace hayfork::cli {

std::string read_input(const std::string& path, ErrorSubject subject, size_t limit_bytes) {
  if (path != "-") return read_file(path, subject, limit_bytes);
  std::string text;
  char buffer[1 << 16];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) {
    text.append(buffer, n);
    if (text.size() > limit_bytes) throw Error(ErrorCode::corrupt, subject, "too much on standard input");
  }
  return text;
}

}  // namespace hayfork::cli
