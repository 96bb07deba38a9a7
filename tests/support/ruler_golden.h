// Upstream's RULER runs with a real tokenizer (ruler/golden_hf), checked through the tasks.
#pragma once

#include <cstdint>
#include <filesystem>

namespace hayfork::test {

// Checks every sample of the runs with lengths in [low, high] and returns their number. `ruler` is the data folder,
// `tokenizer_archive` the .tar.xz of the tokenizer they were made with.
int check_ruler_runs(const std::filesystem::path& ruler, const std::filesystem::path& tokenizer_archive, int64_t low,
                     int64_t high);

}  // namespace hayfork::test
