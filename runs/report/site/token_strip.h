// What each token of a sample cost, as bars over its place, key tokens underlined; the text itself behind a switch.
// LongPPL's samples have it (runs/token_losses.h); others have nothing to draw. For runs/report/site/ alone.
#pragma once

#include <string>

#include "runs/report/site/pages.h"

namespace hayfork::runs {

struct StripSide {
  std::string who;  // run and model
  const SampleRow* sample = nullptr;
};

// One strip a side that has losses, on one scale. Nothing is written when none has.
void token_strips(PageContext& page, Html& html, std::initializer_list<StripSide> sides);

}  // namespace hayfork::runs
