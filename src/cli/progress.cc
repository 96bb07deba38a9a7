#include "cli/progress.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace hayfork::cli {
namespace {

constexpr double kBarSeconds = 0.1;
constexpr double kLineSeconds = 30;
constexpr double kEventSeconds = 1;
constexpr int kCells = 20;

double share_of(double part, double whole) {
  return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 1;
}

std::string bar_of(double share) {
  const int full = static_cast<int>(share * kCells + 0.5);
  std::string text;
  for (int i = 0; i < kCells; ++i) text += i < full ? "█" : "·";
  return text;
}

}  // namespace

Progress::Progress(Console& console, bool events)
    : console_(console), events_(events), start_(Clock::now()), last_(start_) {}

Progress::~Progress() {
  console_.clear_status();
}

bool Progress::due() {
  const double wait = events_ ? kEventSeconds : console_.bar() ? kBarSeconds : kLineSeconds;
  const auto now = Clock::now();
  if (std::chrono::duration<double>(now - last_).count() < wait) return false;
  last_ = now;
  return true;
}

std::string Progress::line(const ProgressState& state) const {
  const double share = share_of(state.work_done, state.work_total);
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double fresh = state.work_done - first_work_;
  std::string text = fmt::format("{:<10} ", state.task);
  if (console_.bar()) text += bar_of(share) + " ";
  text += fmt::format("{:3.0f} %  {}/{}", share * 100, state.n_done, state.n_total);
  if (seconds > 0.5)
    text += fmt::format("  {} rows/s", format_count(static_cast<int64_t>(static_cast<double>(state.rows) / seconds)));
  if (fresh > 0 && state.work_total > state.work_done) {
    text += fmt::format("  eta {}", format_duration(seconds * (state.work_total - state.work_done) / fresh));
  }
  const double all = static_cast<double>(state.rows + state.rows_reused);
  if (state.rows_reused > 0)
    text += fmt::format("  reuse {:.0f} %", 100 * static_cast<double>(state.rows_reused) / all);
  if (state.n_failed > 0) text += fmt::format("  failed {}", state.n_failed);
  return text;
}

void Progress::preparing(const std::string& task, int64_t n_prepared, int64_t n_total) {
  if (!due()) return;
  if (events_) {
    event("preparing", fmt::format("\"task\":{},\"n\":{},\"of\":{}", nlohmann::json(task).dump(), n_prepared, n_total));
  } else if (console_.bar()) {
    console_.status(fmt::format("{:<10} making prompts {}/{}", task, n_prepared, n_total));
  } else {
    console_.note(fmt::format("{:<10} making prompts {}/{}", task, n_prepared, n_total));
  }
}

void Progress::update(const ProgressState& state) {
  if (state.task != task_) {
    task_ = state.task;
    start_ = Clock::now();
    first_work_ = state.work_done;
  }
  if (!due()) return;
  if (events_) {
    event("progress",
          fmt::format("\"task\":{},\"done\":{},\"of\":{},\"share\":{:.4f},\"rows\":{},\"rows_reused\":{},\"failed\":{}",
                      nlohmann::json(state.task).dump(), state.n_done, state.n_total,
                      share_of(state.work_done, state.work_total), state.rows, state.rows_reused, state.n_failed));
  } else if (console_.bar()) {
    console_.status(line(state));
  } else {
    console_.note(line(state));
  }
}

void Progress::event(const std::string& kind, const std::string& json_members) {
  if (!events_) return;
  std::fputs(fmt::format("{{\"event\":\"{}\",\"at\":\"{}\"{}{}}}\n", kind, utc_now(), json_members.empty() ? "" : ",",
                         json_members)
                 .c_str(),
             stderr);
  std::fflush(stderr);
}

}  // namespace hayfork::cli
