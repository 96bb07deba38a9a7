#include "runs/zstd.h"

#include <zstd.h>

#include <memory>

#include "base/error.h"

namespace hayfork::runs {
namespace {

constexpr int kLevel = 3;  // zstd's own default

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

}  // namespace

std::string zstd_compress(std::string_view bytes) {
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  HAY_CHECK(context != nullptr);
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  const size_t n = ZSTD_compressCCtx(context.get(), out.data(), out.size(), bytes.data(), bytes.size(), kLevel);
  HAY_CHECK(ZSTD_isError(n) == 0);
  out.resize(n);
  return out;
}

std::optional<std::string> zstd_decompress(std::string_view frame, size_t limit) {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (size > limit) return std::nullopt;  // unknown and invalid are larger than any size
  std::string out(static_cast<size_t>(size), '\0');
  const size_t n = ZSTD_decompress(out.data(), out.size(), frame.data(), frame.size());
  if (ZSTD_isError(n) != 0 || n != out.size()) return std::nullopt;
  return out;
}

}  // namespace hayfork::runs
