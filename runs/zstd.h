// zstd for bodies kept in the results database.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hayfork::runs {

std::string zstd_compress(std::string_view bytes);
// What one frame holds. Empty: the frame is damaged, or claims more than `limit` bytes, which are then not asked for.
std::optional<std::string> zstd_decompress(std::string_view frame, size_t limit);

}  // namespace hayfork::runs
