// Bytes of a data file, block by block, from a file, a pipe or memory. Shared by the readers of this folder: it knows
// nothing of lines. Skips a UTF-8 byte order mark; refuses UTF-16 and UTF-32, naming them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace hayfork::datasets {

class ByteSource {
 public:
  // "-" is standard input. Throws: not_found (data) when the file cannot be opened.
  static ByteSource open(const std::filesystem::path& path);
  // `text` must outlive the source. `name` is for messages.
  static ByteSource from_text(std::string_view text, std::string name);

  // Bytes that are there but not consumed; empty only at the end. Valid until the next call of consume or more.
  std::string_view available();
  void consume(size_t n);  // Requires: n ≤ available().size()
  // Offset in the file of the first byte of available().
  uint64_t offset() const { return offset_; }
  const std::string& name() const { return name_; }

 private:
  explicit ByteSource(std::string name) : name_(std::move(name)) {}
  void fill();
  void skip_mark();

  std::string name_;
  std::ifstream file_;
  bool from_file_ = false;
  bool started_ = false;
  std::vector<char> buffer_;
  std::string_view rest_;  // of buffer_, or of the text given
  uint64_t offset_ = 0;
};

// What to do with bytes that are no UTF-8.
enum class InvalidUtf8 {
  error,    // name the line and the byte
  replace,  // U+FFFD per maximal subpart
};

// Valid UTF-8 without NUL, or Error(corrupt, data) with `where` and the offset of the byte in the file; `offset` is
// that of the text's first byte.
void check_text(std::string& text, InvalidUtf8 policy, const std::string& where, uint64_t offset);

}  // namespace hayfork::datasets
