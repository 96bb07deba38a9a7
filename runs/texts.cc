// The texts table: each text once, under the SHA-256 of its bytes, compressed when that makes it smaller.
#include <fmt/format.h>

#include "runs/sqlite.h"
#include "runs/zstd.h"

namespace hayfork::runs {
namespace {

constexpr int64_t kLimitBytes = int64_t{1} << 30;  // no stored text is larger; guards against a forged n_bytes

}  // namespace

Blob put_text(Connection& connection, std::string_view text) {
  if (static_cast<int64_t>(text.size()) > kLimitBytes) {
    throw Error(ErrorCode::resource, ErrorSubject::database, "a text is too large for the results database",
                {.why = fmt::format("{} bytes, at most {}", text.size(), kLimitBytes)});
  }
  const Sha256 digest = sha256(text);
  Blob key{std::string(reinterpret_cast<const char*>(digest.data()), digest.size())};
  {
    Statement s = connection.statement("SELECT 1 FROM texts WHERE sha256 = ?");
    if (s.bind_all(key).step()) return key;
  }
  Blob body{text.size() >= 64 ? zstd_compress(text) : std::string(text)};
  const bool smaller = body.bytes.size() < text.size();
  if (!smaller) body.bytes = text;
  connection.run("INSERT INTO texts(sha256, codec, n_bytes, body) VALUES(?,?,?,?)", key, smaller ? "zstd" : "raw",
                 static_cast<int64_t>(text.size()), body);
  return key;
}

std::string get_text(Connection& connection, const Blob& key, const std::string& schema) {
  const auto fail = [&](const std::string& why) {
    const std::string id = hex({reinterpret_cast<const unsigned char*>(key.bytes.data()), key.bytes.size()});
    return Error(ErrorCode::corrupt, ErrorSubject::database, "a stored text is damaged",
                 {.where = connection.name() + ", text " + id, .why = why, .next = "hayfork db check"});
  };
  Statement s = connection.statement("SELECT codec, n_bytes, body FROM " + schema + ".texts WHERE sha256 = ?");
  if (!s.bind_all(key).step()) throw fail("it is not in the texts table");
  const int64_t n_bytes = s.get<int64_t>(1);
  std::string body = s.get<std::string>(2);
  if (n_bytes < 0 || n_bytes > kLimitBytes) throw fail(fmt::format("its size says {} bytes", n_bytes));
  std::string text;
  if (s.get<std::string>(0) == "zstd") {
    auto whole = zstd_decompress(body, static_cast<size_t>(n_bytes));
    if (!whole || whole->size() != static_cast<size_t>(n_bytes)) {
      throw fail("it does not decompress to the size that its row says");
    }
    text = std::move(*whole);
  } else {
    text = std::move(body);
  }
  const Sha256 digest = sha256(text);
  if (key.bytes != std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size())) {
    throw fail("its bytes have another digest");
  }
  return text;
}

}  // namespace hayfork::runs
