#include "runs/rows.h"

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

}  // namespace hayfork::runs
