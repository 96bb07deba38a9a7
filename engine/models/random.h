// random:<shape>[+swa<w>[@layers]][+orthros<w>][:seed] — models of known shapes with made-up weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <vector>

#include "engine/models/spec.h"

namespace hayfork::engine {

struct RandomModel {
  std::string config;  // config.json of the shape
  uint64_t seed = 0;
  int32_t swa = 0;                  // 0: none
  std::vector<int32_t> swa_layers;  // empty: all
  int32_t orthros = 0;              // 0: none
};

bool is_random_name(std::string_view name);
// Throws: usage, listing the shapes.
RandomModel parse_random(const std::string& name);
// Puts the modifiers over the shape's layers. Throws: usage.
void apply_modifiers(ModelSpec& spec, const RandomModel& model);

}  // namespace hayfork::engine
