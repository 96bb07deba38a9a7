#include "datasets/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include "base/file_map.h"

namespace hayfork::datasets {
namespace {

constexpr int kGzipOnly = 16 + MAX_WBITS;  // zlib.h, inflateInit2
constexpr size_t kBlock = 1 << 18;

class Inflater {
 public:
  explicit Inflater(const std::string& name) : name_(name) {
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) fail("zlib cannot start");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Appends one member's text; gives what follows it.
  std::string_view member(std::string_view bytes, std::string& text, size_t limit_bytes) {
    if (inflateReset(&stream_) != Z_OK) fail("zlib cannot start");
    for (int state = Z_OK; state != Z_STREAM_END;) {
      const size_t given = std::min(bytes.size(), kBlock);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      stream_.avail_in = static_cast<uInt>(given);
      const size_t before = text.size();
      text.resize(before + kBlock);
      stream_.next_out = reinterpret_cast<Bytef*>(text.data() + before);
      stream_.avail_out = static_cast<uInt>(kBlock);
      state = inflate(&stream_, Z_NO_FLUSH);
      text.resize(before + kBlock - stream_.avail_out);
      bytes.remove_prefix(given - stream_.avail_in);
      if (text.size() > limit_bytes) fail(fmt::format("it inflates to more than {} bytes", limit_bytes));
      if (state == Z_BUF_ERROR || (state == Z_OK && bytes.empty() && stream_.avail_out > 0)) fail("it ends too early");
      if (state != Z_OK && state != Z_STREAM_END) fail(stream_.msg != nullptr ? stream_.msg : "the stream is damaged");
    }
    return bytes;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "a gzip file cannot be read", {.where = name_, .why = why});
  }

  z_stream stream_{};
  const std::string& name_;
};

}  // namespace

std::string gunzip(std::string_view bytes, const std::string& name, size_t limit_bytes) {
  Inflater inflater(name);
  std::string text;
  do bytes = inflater.member(bytes, text, limit_bytes);
  while (bytes.starts_with("\x1f\x8b"));
  return text;
}

std::string read_data_file(const std::filesystem::path& path, size_t limit_bytes) {
  std::string bytes = read_file(path, ErrorSubject::data, limit_bytes);
  if (!bytes.starts_with("\x1f\x8b")) return bytes;
  return gunzip(bytes, path.string(), limit_bytes);
}

}  // namespace hayfork::datasets
