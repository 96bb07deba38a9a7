#include "runs/rows.h"

#include <fmt/format.h>

#include "base/error.h"

namespace hayfork::runs {

Blob pack_ids(const std::vector<int32_t>& ids) {
  Blob blob;
  blob.bytes.reserve(ids.size() * 4);
  for (const int32_t id : ids) {
    const auto u = static_cast<uint32_t>(id);
    for (int shift = 0; shift < 32; shift += 8) blob.bytes += static_cast<char>(u >> shift & 0xFF);
  }
  return blob;
}

std::vector<int32_t> unpack_ids(const Blob& blob) {
  if (blob.bytes.size() % 4 != 0) {
    throw Error(ErrorCode::corrupt, ErrorSubject::database, "stored token ids are damaged",
                {.why = fmt::format("{} bytes are no whole number of 4-byte ids", blob.bytes.size())});
  }
  std::vector<int32_t> ids(blob.bytes.size() / 4);
  for (size_t i = 0; i < ids.size(); ++i) {
    uint32_t u = 0;
    for (size_t b = 0; b < 4; ++b)
      u |= static_cast<uint32_t>(static_cast<unsigned char>(blob.bytes[4 * i + b])) << (8 * b);
    ids[i] = static_cast<int32_t>(u);
  }
  return ids;
}

}  // namespace hayfork::runs
