#include "cli/calibration.h"

#include <cmath>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/settings.h"

namespace hayfork::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMaxBytes = 4 << 20;
constexpr double kMinMs = 50;  // shorter sums are noise

fs::path speed_file() {
  const fs::path folder = cache_folder();
  return folder.empty() ? folder : folder / "speed.json";
}

std::string key_of(const engine::ModelInfo& info) {
  return fmt::format("{} {} {} {}", info.config_sha256, info.n_params, info.dtype, info.device);
}

// An unreadable cache counts as empty.
json read_speeds() {
  std::error_code ignored;
  const fs::path path = speed_file();
  if (path.empty() || !fs::is_regular_file(path, ignored)) return json::object();
  try {
    json root = parse_json(read_file(path, ErrorSubject::disk, kMaxBytes), path.string(), ErrorSubject::disk);
    return root.is_object() ? root : json::object();
  } catch (const Error&) {
    return json::object();
  }
}

}  // namespace

void SpeedLog::add(const tasks::SampleResult& result) {
  Sum& sum = by_length_[result.sample.ctx_len.value_or(result.sample.prompt_tokens)];
  sum.rows += static_cast<double>(result.effort.rows_base + result.effort.rows_output);
  sum.prefill_ms += result.effort.prefill_ms;
  sum.decode_ms += result.effort.decode_ms;
  for (const engine::Answer& answer : result.answers) {
    if (const auto* generated = std::get_if<engine::GenerateAnswer>(&answer.result)) {
      sum.new_tokens += static_cast<double>(generated->ids.size());
    }
  }
}

void SpeedLog::save(const engine::Engine& engine) const {
  const fs::path path = speed_file();
  if (path.empty()) return;
  json root = read_speeds();
  json& mine = root[key_of(engine.info())];
  if (!mine.is_object()) mine = json::object();
  for (const auto& [length, sum] : by_length_) {
    if (sum.prefill_ms < kMinMs) continue;
    mine[std::to_string(length)] = {{"prefill", sum.rows / sum.prefill_ms * 1000},
                                    {"decode", sum.decode_ms > 0 ? sum.new_tokens / sum.decode_ms * 1000 : 0},
                                    {"when", utc_now()}};
  }
  try {
    fs::create_directories(path.parent_path());
    write_file_atomically(path, root.dump());
  } catch (const fs::filesystem_error&) {
    return;
  } catch (const Error&) {
    return;
  }
}

std::optional<Speed> known_speed(const engine::ModelInfo& info, int64_t length) {
  const json root = read_speeds();
  const auto mine = root.find(key_of(info));
  if (mine == root.end() || !mine->is_object()) return std::nullopt;
  std::optional<Speed> best;
  double best_distance = 0;
  for (const auto& [key, value] : mine->items()) {
    const double at = std::strtod(key.c_str(), nullptr);
    const json prefill = value.is_object() ? value.value("prefill", json()) : json();
    const json decode = value.is_object() ? value.value("decode", json()) : json();
    if (at <= 0 || !prefill.is_number() || !decode.is_number()) continue;
    const double distance = std::abs(std::log(at / static_cast<double>(std::max<int64_t>(length, 1))));
    if (best && distance >= best_distance) continue;
    const json when = value.value("when", json());
    best = Speed{prefill.get<double>(), decode.get<double>(), when.is_string() ? when.get<std::string>() : ""};
    best_distance = distance;
  }
  return best;
}

}  // namespace hayfork::cli
