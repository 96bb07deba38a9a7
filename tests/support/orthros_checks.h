// The nine properties of orthros.md section 10 and the regimes of section 2 as checks that run on any device.
#pragma once

#include "tests/support/tiny_orthros.h"

namespace hayfork::test {

// Shapes that between them have every stage, a subset of layers, both backbones and several head ratios.
std::vector<OrthrosShape> orthros_shapes();

// 1. Equal to ordinary attention under the mask; `tolerance` relative to the largest logit, in float32.
void check_mask_oracle(const OrthrosShape& shape, const MakeContext& make_context, double tolerance);
// The others ask for equal bits unless they say so, in the type given.
// 2 and 3. Where prefill rows of both models go through one kernel, `tolerance` is 0 and logits have equal bits; else
// they are compared relative to the largest, and K/V of base rows and logits of decode rows have equal bits.
void check_backbone_with_wide_window(OrthrosShape shape, const MakeContext& make_context, engine::DType type,
                                     double tolerance);
void check_backbone_in_first_window(OrthrosShape shape, const MakeContext& make_context, engine::DType type,
                                    double tolerance);
void check_outputs_alone(const OrthrosShape& shape, const MakeContext& make_context, engine::DType type);    // 4
void check_truncated_input(const OrthrosShape& shape, const MakeContext& make_context, engine::DType type);  // 5
void check_chunks(const OrthrosShape& shape, const MakeContext& make_context, engine::DType type);           // 6
// 7. Decode rows may have kernels of their own: `tolerance` relative to the largest logit.
void check_decode(const OrthrosShape& shape, const MakeContext& make_context, engine::DType type, double tolerance);
void check_locality(const OrthrosShape& shape, const MakeContext& make_context, engine::DType type);  // 8

// Rows of the six regimes, as answers report them; the same scores whichever way they are asked for.
void check_regimes(const OrthrosShape& shape, const MakeContext& make_context);

// The same answers to a depth sweep with and without reuse, from fewer rows.
void check_depth_sweep_reuse(const OrthrosShape& shape, const MakeContext& make_context, engine::DType type);
// The same answers with most keys parked.
void check_parked_keys(const OrthrosShape& shape, const MakeContext& make_context, engine::DType type);

// 9, for Orthros-H, from a checkpoint of this repository: base rows are the same with and without output rows; with a
// convolution that passes its input through, a wide window and no affine, the model is its backbone up to `tolerance`.
void check_gdn_base_rows(const std::filesystem::path& folder, const MakeContext& make_context, engine::DType type);
void check_gdn_backbone(const std::filesystem::path& folder, const MakeContext& make_context, double tolerance);

}  // namespace hayfork::test
