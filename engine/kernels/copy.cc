#include "engine/kernels/copy.h"

namespace hayfork::engine {

namespace cuda {
void copy_many(Context& context, std::span<const DeviceCopy> copies);
}  // namespace cuda
namespace cpu {
void copy_many(Context& context, std::span<const DeviceCopy> copies) {
  for (const DeviceCopy& one : copies) context.copy(one.to, one.from, one.bytes);
}
}  // namespace cpu

void copy_many(Context& context, std::span<const DeviceCopy> copies) {
  HAY_DISPATCH(context, copy_many, (context, copies));
}

}  // namespace hayfork::engine
