// The checks every golden checkpoint goes through, wherever its folder is.
#pragma once

#include <filesystem>

namespace hayfork::test {

// float32 logits within `tolerance` of the float64 reference (largest difference over largest logit, and in the
// 2-norm), the same bits in passes of 1, 16 and all positions, on three
// threads and with one row wanted, decode rows within the tolerance
// too; K and V where given.
void check_golden(const std::filesystem::path& folder, double tolerance);
// bf16: root mean square error at most 1.5 times that of the reference's own bf16 run. Nothing when the
// case has no such run.
void check_golden_bf16(const std::filesystem::path& folder);

}  // namespace hayfork::test
