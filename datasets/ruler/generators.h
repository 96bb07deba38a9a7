// One maker for each of RULER's five generators; make_ruler_generator picks.
#pragma once

#include <memory>

#include "datasets/ruler/ruler.h"

namespace hayfork::datasets {

using RulerMaker = std::unique_ptr<RulerGenerator> (*)(const RulerTask&, const RulerSources&, const RulerOptions&);
std::unique_ptr<RulerGenerator> make_ruler_niah(const RulerTask&, const RulerSources&, const RulerOptions&);
std::unique_ptr<RulerGenerator> make_ruler_vt(const RulerTask&, const RulerSources&, const RulerOptions&);
std::unique_ptr<RulerGenerator> make_ruler_cwe(const RulerTask&, const RulerSources&, const RulerOptions&);
std::unique_ptr<RulerGenerator> make_ruler_fwe(const RulerTask&, const RulerSources&, const RulerOptions&);
std::unique_ptr<RulerGenerator> make_ruler_qa(const RulerTask&, const RulerSources&, const RulerOptions&);

// The sentence of the noise haystacks.
constexpr std::string_view kRulerNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

}  // namespace hayfork::datasets
