#include "datasets/byte_source.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace hayfork::datasets {
namespace {

constexpr size_t kBlock = 1 << 16;

}  // namespace

ByteSource ByteSource::open(const std::filesystem::path& path) {
  const bool standard_input = path == "-";
  ByteSource source(standard_input ? "standard input" : path.string());
  const auto cannot = [&](const std::string& why) {
    return Error(ErrorCode::not_found, ErrorSubject::data, "a data file cannot be read",
                 {.where = source.name_, .why = why});
  };
  std::error_code failure;
  if (!standard_input && std::filesystem::is_directory(path, failure)) throw cannot("it is a folder");
  source.file_.open(standard_input ? "/dev/stdin" : path.c_str(), std::ios::binary);
  if (!source.file_)
    throw cannot(std::filesystem::exists(path, failure) ? "it cannot be opened" : "there is no such file");
  source.from_file_ = true;
  source.buffer_.resize(kBlock);
  return source;
}

ByteSource ByteSource::from_text(std::string_view text, std::string name) {
  ByteSource source(std::move(name));
  source.rest_ = text;
  return source;
}

std::string_view ByteSource::available() {
  if (!started_) {
    started_ = true;
    fill();
    skip_mark();
  }
  if (rest_.empty()) fill();
  return rest_;
}

void ByteSource::consume(size_t n) {
  rest_.remove_prefix(n);
  offset_ += n;
}

void ByteSource::fill() {
  if (!from_file_ || !file_) return;
  file_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  if (file_.bad())
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "reading a data file failed",
                {.where = fmt::format("{}, byte {}", name_, offset_)});
  rest_ = {buffer_.data(), static_cast<size_t>(file_.gcount())};
}

void ByteSource::skip_mark() {
  if (rest_.starts_with("\xEF\xBB\xBF")) return consume(3);
  if (rest_.starts_with("\xFF\xFE") || rest_.starts_with("\xFE\xFF") ||
      rest_.starts_with(std::string_view("\0\0\xFE\xFF", 4))) {
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "a data file is not UTF-8",
                {.where = name_,
                 .why = "it begins with the byte order mark of UTF-16 or UTF-32",
                 .next = "convert it, for example with iconv"});
  }
}

void check_text(std::string& text, InvalidUtf8 policy, const std::string& where, uint64_t offset) {
  const auto fail = [&](const std::string& why) {
    return Error(ErrorCode::corrupt, ErrorSubject::data, "a data file holds bytes that are no text",
                 {.where = where, .why = why});
  };
  if (const size_t nul = text.find('\0'); nul != std::string::npos)
    throw fail(fmt::format("a NUL byte at byte {} of the file", offset + nul));
  const std::optional<size_t> bad = find_invalid_utf8(text);
  if (!bad) return;
  if (policy == InvalidUtf8::error) {
    throw fail(fmt::format("invalid UTF-8 (0x{:02X}) at byte {} of the file", static_cast<unsigned char>(text[*bad]),
                           offset + *bad));
  }
  text = replace_invalid_utf8(text);
}

}  // namespace hayfork::datasets
