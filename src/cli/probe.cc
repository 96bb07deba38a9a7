#include "cli/probe.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "cli/input.h"
#include "cli/signals.h"

namespace hayfork::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMaxRequestBytes = size_t{1} << 32;

[[noreturn]] void malformed(const std::string& where, const std::string& why) {
  throw Error(ErrorCode::corrupt, ErrorSubject::data, "malformed request", {.where = where, .why = why});
}

}  // namespace

void declare_probe(Flags& flags, ProbeFlags& probe) {
  declare_engine(flags, probe.engine);
  flags.toggle("allow-beyond-window", probe.allow_beyond_window,
               "Also compute positions past the model's own maximum length.");
  flags.group("Output");
  flags
      .text("stats", probe.stats, "FILE",
            "Write rows computed, reused and given to each expert, time and memory as JSON.")
      .kind = "file";
  flags.choice("format", probe.format, {"jsonl"}, "How answers are printed.");
}

void declare_probe_text(Flags& flags, ProbeFlags& probe) {
  flags.group("Text");
  flags.choice(
      "add-bos", probe.add_bos, {"auto", "on", "off"},
      "Begin texts with the begin-of-text token; auto as the tokenizer does by itself. Ids are never changed.");
}

void declare_text_source(Flags& flags, std::string& model, std::string& tokenizer, const char* help) {
  flags.group("Input");
  FlagInfo& checkpoint = flags.text("model", model, "M", help);
  checkpoint.required = true;
  checkpoint.kind = "dir";
  flags.text("tokenizer", tokenizer, "DIR", "Another tokenizer than the checkpoint's own.").kind = "dir";
}

std::unique_ptr<engine::Engine> open_probe(const ProbeFlags& flags, Console& console) {
  engine::EngineOptions options = engine_options(flags.engine, console);
  options.weights_digest = false;
  options.allow_beyond_window = flags.allow_beyond_window;
  return open_engine(flags.engine, std::move(options));
}

void write_stats(const ProbeFlags& flags, const engine::Engine& engine) {
  if (flags.stats.empty()) return;
  const engine::EngineStats stats = engine.stats();
  ordered_json value = {{"schema", "hayfork/probe-stats/1"},
                        {"rows", {{"base", stats.rows_base}, {"output", stats.rows_output}}},
                        {"rows_reused", stats.rows_reused},
                        {"passes", stats.n_passes},
                        {"busy", stats.busy},
                        {"peak_bytes", stats.peak_bytes},
                        {"weight_bytes", stats.weight_bytes},
                        {"cache_bytes", stats.cache_bytes},
                        {"planned_bytes", stats.planned_bytes},
                        {"prefill_ms", stats.prefill_ms},
                        {"decode_ms", stats.decode_ms},
                        {"device", engine.info().device},
                        {"dtype", engine.info().dtype},
                        {"numerics_id", engine.info().numerics_id}};
  for (const engine::ExpertLoad& load : engine.expert_load()) {
    const int64_t rows = std::accumulate(load.rows.begin(), load.rows.end(), int64_t{0});
    const int64_t busiest = *std::max_element(load.rows.begin(), load.rows.end());
    const double mean = static_cast<double>(rows) / static_cast<double>(load.rows.size());
    value["experts"].push_back({{"layer", load.layer},
                                {"top_k", load.per_token},
                                {"rows", load.rows},
                                {"busiest_over_mean", rows == 0 ? 0 : static_cast<double>(busiest) / mean}});
  }
  write_file_atomically(flags.stats, value.dump(1) + "\n");
}

std::vector<JsonLine> read_json_lines(const std::string& path) {
  const std::string text = read_input(path, ErrorSubject::data, kMaxRequestBytes);
  std::vector<JsonLine> lines;
  size_t begin = 0;
  for (size_t n = 1; begin < text.size(); ++n) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}:{}", path, n);
    lines.push_back({parse_json(line, where, ErrorSubject::data), where});
  }
  if (lines.empty()) {
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "nothing is asked",
                {.where = path, .why = "no line of it holds anything", .next = "write one JSON value a line"});
  }
  return lines;
}

std::vector<int32_t> ids_of(const json& value, const engine::ModelInfo& info, const std::string& where) {
  if (!value.is_array()) malformed(where, "want a list of token ids");
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const json& item : value) {
    if (!item.is_number_integer()) malformed(where, fmt::format("{} is no token id", item.dump().substr(0, 40)));
    const bool small =
        item.is_number_unsigned() ? item.get<uint64_t>() < (uint64_t{1} << 31) : item.get<int64_t>() >= 0;
    const int64_t id = small ? item.get<int64_t>() : -1;
    if (id < 0 || id >= info.vocab_size) {
      malformed(where, fmt::format("token id {} is not in the vocabulary of {}", item.dump(), info.vocab_size));
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::vector<std::vector<int32_t>> read_ids_file(const std::string& path, const engine::ModelInfo& info) {
  const json root = parse_json(read_input(path, ErrorSubject::data, kMaxRequestBytes), path, ErrorSubject::data);
  if (!root.is_object() || !root.contains("ids") || !root["ids"].is_array() || root["ids"].empty())
    malformed(path, "want {\"ids\":[[…],…]}");
  std::vector<std::vector<int32_t>> all;
  for (size_t i = 0; i < root["ids"].size(); ++i) {
    all.push_back(ids_of(root["ids"][i], info, fmt::format("{}, ids[{}]", path, i)));
    if (all.back().empty()) malformed(fmt::format("{}, ids[{}]", path, i), "the list is empty");
  }
  return all;
}

const engine::Tokenizer& tokenizer_of(const engine::Lm& lm, const std::string& where) {
  if (lm.tokenizer() == nullptr) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "this model has no tokenizer, and the request is text",
                {.where = where, .next = "give token ids, or --tokenizer DIR"});
  }
  return *lm.tokenizer();
}

std::vector<int32_t> encode_text(const engine::Tokenizer& tokenizer, std::string_view text,
                                 const std::string& add_bos) {
  const auto bos = tokenizer.special_tokens().find("bos_token");
  const bool has_bos = bos != tokenizer.special_tokens().end() && !bos->second.empty() && text.starts_with(bos->second);
  if (add_bos == "off" || has_bos) return tokenizer.encode(text, {.add_special = false});
  if (add_bos == "auto" || tokenizer.adds_bos()) return tokenizer.encode(text);
  std::vector<int32_t> ids = tokenizer.encode(text, {.add_special = false});
  if (!tokenizer.bos_id()) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "--add-bos on: the tokenizer has no begin-of-text token");
  }
  ids.insert(ids.begin(), *tokenizer.bos_id());
  return ids;
}

int answer_in_order(engine::Engine& engine, const std::vector<engine::Request>& requests, Console& console,
                    const std::function<ordered_json(size_t, const engine::Answer&)>& line) {
  std::vector<std::optional<std::string>> waiting(requests.size());
  size_t next = 0;
  bool failed = false, memory_alone = true;  // what the failures have in common
  const SignalGuard signals;
  engine.answer(
      requests,
      [&](engine::Answer answer) {
        ordered_json value;
        if (const auto* failure = std::get_if<engine::Failure>(&answer.result)) {
          value = {{"error", failure->message}, {"code", name(failure->code)}};
          failed = true;
          memory_alone = memory_alone && failure->code == ErrorCode::resource;
        } else {
          memory_alone = false;
          value = line(answer.index, answer);
        }
        waiting.at(answer.index) = value.dump(-1, ' ', true, ordered_json::error_handler_t::replace) + "\n";
        while (next < waiting.size() && waiting[next]) {
          console.out(*waiting[next]);
          waiting[next++]->clear();
        }
      },
      signals.flag());
  if (signals.exit_status() != 0) return signals.exit_status();
  if (failed && memory_alone) return 8;  // nothing that was asked fits
  return failed ? 4 : 0;
}

}  // namespace hayfork::cli
