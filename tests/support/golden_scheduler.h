// Golden checkpoints through the scheduler: what every case must hold, wherever its folder lies.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hayfork::test {

// Greedy answers equal the reference's; same bits for every batch, order, chunk, with and without prefix reuse.
void check_greedy(const std::filesystem::path& folder);
// All logits: the reference's to 2e-5 in the 2-norm, and the same bits under every switch.
void check_logit_bits(const std::filesystem::path& folder);
// Orthros: scores of a continuation, rows they take, K and V of the last layer.
void check_continuation(const std::filesystem::path& folder);
// Orthros: needles at several depths of one haystack have the same bits with and without reuse, and reuse saves rows.
void check_depth_sweep(const std::filesystem::path& folder);

}  // namespace hayfork::test
