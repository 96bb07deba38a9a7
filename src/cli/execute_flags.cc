// Flags of carrying out a plan.
#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/execute.h"
#include "cli/times.h"

namespace hayfork::cli {
namespace {

void read_shard(const std::string& text, ExecuteOptions& options) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) {
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("--shard: cannot read \"{}\"", text),
                {.why = "want I/N, I from 0 to N-1"});
  }
  options.shard = parse_count(text.substr(0, slash), "--shard");
  options.n_shards = parse_count(text.substr(slash + 1), "--shard");
  if (options.n_shards < 1 || options.n_shards > 100'000 || options.shard >= options.n_shards) {
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("--shard: there is no shard {}", text),
                {.why = "I runs from 0 to N-1"});
  }
}

}  // namespace

void declare_execution(Flags& flags, ExecuteOptions& options) {
  flags.group("Sharing the work");
  flags.declare(
      "shard", "I/N", "Only the samples whose number in the plan modulo N is I; db merge joins the databases.",
      [&options](const std::vector<std::string>& values) { read_shard(values.empty() ? "" : values.back(), options); });
  flags.group("Stopping");
  flags.declare("time-limit", "TIME", "Stop cleanly after 50m, 2h; exit status 4, and resume goes on.",
                [&options](const std::vector<std::string>& values) {
                  options.time_limit_s = parse_duration(values.empty() ? "" : values.back(), "--time-limit");
                });
  flags
      .declare("max-failed", "SHARE", "Give up once more than this share of the samples failed.",
               [&options](const std::vector<std::string>& values) {
                 const std::string text = values.empty() ? "" : values.back();
                 const std::vector<double> shares = parse_numbers(text, "--max-failed");
                 options.max_failed = shares.front();
                 if (shares.size() == 1 && shares.front() >= 0 && shares.front() <= 1) return;
                 throw Error(ErrorCode::usage, ErrorSubject::general,
                             fmt::format("--max-failed: cannot use {}", text.substr(0, 40)),
                             {.why = "it is a share of the samples", .next = "give 0 to 1: 0.05 for one in twenty"});
               })
      .preset = "1";
  flags.toggle("strict", options.strict, "Exit status 4 when a prompt was cut to fit.");
  flags.group("Storage");
  flags.toggle("keep-prompts", options.keep_prompts, "Store prompts of any length; else those up to 16 KiB.");
  flags.declare("no-log-samples", "", "Store scores without prompts and answers.",
                [&options](const auto&) { options.log_samples = false; });
  flags.group("Progress");
  flags
      .declare("events", "jsonl", "Progress as JSON lines on standard error, instead of a bar.",
               [&options](const std::vector<std::string>& values) {
                 if (values.empty() || values.back() != "jsonl") {
                   throw Error(ErrorCode::usage, ErrorSubject::general, "--events: want jsonl");
                 }
                 options.events = true;
               })
      .choices = {"jsonl"};
}

}  // namespace hayfork::cli
