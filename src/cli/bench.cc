// hayfork bench: prefill and decode of a model by prompt length, depth and batch, beside the floor of the device.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/error.h"
#include "base/units.h"
#include "base/version.h"
#include "cli/engine_flags.h"
#include "cli/output.h"
#include "cli/plan.h"
#include "cli/verbs.h"
#include "engine/device_list.h"
#include "engine/floor.h"

namespace hayfork::cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct BenchOptions {
  EngineFlags engine;
  OutputOptions output;
  DbOptions db;
  std::vector<int64_t> prompts{512}, depths{0}, batches{1};
  int64_t n_gen = 128, reps = 5, warmup = 1;
  std::vector<double> rates;  // TFLOP/s, TB/s
  bool save = false;
  std::string name, note;
};

constexpr const char* kConvention =
    "2 FLOP a weight and row; attention 4 FLOP a query head, its width and key seen; weights read once a step, keys "
    "and "
    "values seen once";

struct Spread {
  double mean = 0, sd = 0;
};
Spread spread(const std::vector<double>& values) {
  Spread s;
  for (const double v : values) s.mean += v / static_cast<double>(values.size());
  for (const double v : values) s.sd += (v - s.mean) * (v - s.mean);
  s.sd = values.size() > 1 ? std::sqrt(s.sd / static_cast<double>(values.size() - 1)) : 0;
  return s;
}

// One line of the answer: a prompt prefilled (pp512), or tokens generated behind it (tg128).
struct Line {
  std::string test;
  int64_t n_prompt = 0, n_gen = 0, depth = 0, batch = 1;
  std::vector<double> ms;  // by repetition
  std::optional<double> ttft_ms, e2e_ms, floor_ms;
  double busy = 0;
  int64_t planned_bytes = 0, peak_bytes = 0;

  double tokens() const { return static_cast<double>((n_prompt > 0 ? n_prompt : n_gen) * batch); }
  Spread speed() const {
    std::vector<double> all;
    for (const double each : ms) all.push_back(tokens() / each * 1e3);
    return spread(all);
  }
};

// What was opened, and what that took.
struct Opened {
  std::string device, commit;
  double open_s = 0, first_token_s = 0;
  int64_t host_bytes = 0;  // the process's peak
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int64_t host_peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// The device's own name: "NVIDIA H200", or the processor's.
std::string device_name(const engine::ModelInfo& info) {
  for (const engine::Accelerator& a : engine::list_accelerators().accelerators) {
    if (a.device == info.device) return a.name;
  }
  return host_row().cpu.value_or(info.device);
}

int32_t as_count(int64_t n, const char* option, int64_t least) {
  if (n < least || n > 1 << 24) {
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("{}: cannot use {}", option, n),
                {.why = fmt::format("want {} to {}", least, 1 << 24)});
  }
  return static_cast<int32_t>(n);
}

std::optional<engine::FloorRates> rates_of(const BenchOptions& options, const std::string& device) {
  if (options.rates.empty()) return engine::known_rates(device);
  if (options.rates.size() != 2 || options.rates[0] <= 0 || options.rates[1] <= 0) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "--rates wants two numbers",
                {.why = "TFLOP/s of matrix products and TB/s of memory, as measured on the device: 775,4.2"});
  }
  return engine::FloorRates{options.rates[0] * 1e12, options.rates[1] * 1e12};
}

void measure_case(engine::Engine& engine, const BenchOptions& options, const std::optional<engine::FloorRates>& rates,
                  const engine::MeasureCase& what, std::vector<Line>& lines) {
  Line prefill{
      .test = fmt::format("pp{}", what.n_prompt), .n_prompt = what.n_prompt, .depth = what.depth, .batch = what.batch};
  Line decode{.test = fmt::format("tg{}", what.n_gen),
              .n_gen = what.n_gen,
              .depth = int64_t{what.depth} + what.n_prompt,
              .batch = what.batch};
  std::vector<double> busy;
  for (int64_t rep = -options.warmup; rep < options.reps; ++rep) {
    const engine::Measurement m = engine.measure(what);
    prefill.planned_bytes = decode.planned_bytes = m.planned_bytes;
    prefill.peak_bytes = decode.peak_bytes = m.peak_bytes;
    if (rep < 0) continue;
    prefill.ms.push_back(m.prefill_ms);
    decode.ms.push_back(m.decode_ms);
    busy.push_back(m.busy);
  }
  prefill.busy = decode.busy = spread(busy).mean;
  prefill.ttft_ms = spread(prefill.ms).mean;
  decode.e2e_ms = spread(prefill.ms).mean + spread(decode.ms).mean;
  const int64_t from = what.depth, middle = from + what.n_prompt, end = middle + what.n_gen;
  if (rates) {
    const std::vector<engine::ExpertLoad> experts = engine.expert_load();
    prefill.floor_ms = engine::prefill_work(engine.info(), from, middle, what.batch, experts).seconds(*rates) * 1e3;
    decode.floor_ms = engine::decode_work(engine.info(), middle, end, what.batch, experts).seconds(*rates) * 1e3;
  }
  if (what.n_prompt > 0) lines.push_back(prefill);
  if (what.n_gen > 0) lines.push_back(decode);
}

runs::Section section_of(const std::vector<std::pair<std::string, Line>>& lines, const BenchOptions& options) {
  using runs::Align;
  using runs::CellType;
  runs::Section section{.name = "bench", .table = {}};
  const auto column = [&](const char* name, CellType type, int digits = 1) {
    section.table.columns.push_back(
        {.name = name, .align = type == CellType::text ? Align::left : Align::right, .type = type, .digits = digits});
  };
  for (const char* name : {"model", "test"}) column(name, CellType::text);
  for (const char* name : {"batch", "depth"}) column(name, CellType::integer);
  for (const char* name : {"tokens_per_s", "sd", "ms", "floor_ms"}) column(name, CellType::real);
  column("x_floor", CellType::real, 2);
  for (const char* name : {"ttft_ms", "e2e_ms"}) column(name, CellType::real);
  column("busy", CellType::percent);
  for (const char* name : {"planned_bytes", "peak_bytes"}) column(name, CellType::bytes);
  for (const char* name : {"n_prompt", "n_gen", "reps"}) column(name, CellType::integer);
  for (const auto& [model, line] : lines) {
    const Spread speed = line.speed(), ms = spread(line.ms);
    section.table.rows.push_back(
        {model, line.test, line.batch, line.depth, speed.mean, speed.sd, ms.mean, cell(line.floor_ms),
         line.floor_ms ? runs::Cell(ms.mean / *line.floor_ms) : runs::Cell(), cell(line.ttft_ms), cell(line.e2e_ms),
         line.busy, line.planned_bytes, line.peak_bytes, line.n_prompt, line.n_gen, options.reps});
  }
  return section;
}

runs::Section opened_section(const engine::ModelInfo& info, const Opened& opened,
                             const std::optional<engine::FloorRates>& rates) {
  using runs::CellType;
  runs::Section section{.name = "engine",
                        .table = {{{.name = "model"},
                                   {.name = "device"},
                                   {.name = "device_name"},
                                   {.name = "dtype"},
                                   {.name = "kv_dtype"},
                                   {.name = "commit"},
                                   {.name = "open_s", .type = CellType::real, .digits = 1},
                                   {.name = "first_token_s", .type = CellType::real, .digits = 1},
                                   {.name = "host_peak_bytes", .type = CellType::bytes},
                                   {.name = "tflops", .type = CellType::real, .digits = 0},
                                   {.name = "tb_per_s", .type = CellType::real, .digits = 2},
                                   {.name = "flop_convention"}},
                                  {}},
                        .record = false};
  section.table.rows.push_back({info.name, info.device, opened.device, info.dtype, info.kv_dtype, opened.commit,
                                opened.open_s, opened.first_token_s, opened.host_bytes,
                                rates ? runs::Cell(rates->flops / 1e12) : runs::Cell(),
                                rates ? runs::Cell(rates->bytes / 1e12) : runs::Cell(), std::string(kConvention)});
  return section;
}

// A run without tasks: its rows stand in the table of benchmarks.
std::string save(runs::Store& store, const BenchOptions& options, const engine::ModelInfo& info,
                 const std::string& device, const std::vector<Line>& lines, double busy, const Console& console) {
  const json config = {{"verb", "bench"},           {"model", options.engine.model},  {"prompt", options.prompts},
                       {"depth", options.depths},   {"batch", options.batches},       {"gen", options.n_gen},
                       {"reps", options.reps},      {"warmup", options.warmup},       {"dtype", info.dtype},
                       {"kv_dtype", info.kv_dtype}, {"graphs", options.engine.graphs}};
  runs::RunIdentity identity;
  identity.model = model_row(info);
  identity.layers = layer_rows(info);
  identity.host = host_row();
  identity.plan_sha256 =
      sha256_hex(canonical_json({{"bench", config}, {"model", runs::model_identity(identity.model)}}));
  identity.numerics_id = info.numerics_id;
  identity.engine = info.device;
  identity.dtype = info.dtype;
  identity.kv_dtype = info.kv_dtype;
  identity.cli_json = json(console.command_line()).dump();
  identity.config_json = config.dump();
  if (!options.name.empty()) identity.name = options.name;
  if (!options.note.empty()) identity.note = options.note;
  identity.tags = {"bench"};
  const runs::RunHandle handle = store.begin_run(identity, {});
  std::vector<runs::BenchRow> rows;
  for (const Line& line : lines) {
    runs::BenchRow row;
    row.run = handle.run;
    row.device = device;
    row.floor_ms = line.floor_ms;
    row.test = line.test;
    row.n_prompt = line.n_prompt;
    row.n_gen = line.n_gen;
    row.depth = line.depth;
    row.batch = line.batch;
    row.reps = options.reps;
    row.tps_mean = line.speed().mean;
    row.tps_sd = line.speed().sd;
    row.ttft_ms = line.ttft_ms;
    row.peak_mem_bytes = line.peak_bytes;
    row.reps_json = json(line.ms).dump();
    rows.push_back(std::move(row));
  }
  store.add_bench(rows);
  store.finish_run(handle.run, {.status = "done", .exit_code = 0, .gpu_busy = busy});
  return handle.run_id;
}

std::vector<Line> measure_model(engine::Engine& engine, const BenchOptions& options,
                                const std::optional<engine::FloorRates>& rates, Console& console) {
  std::vector<Line> lines;
  for (const int64_t batch : options.batches) {
    for (const int64_t depth : options.depths) {
      for (const int64_t prompt : options.prompts) {
        const engine::MeasureCase what{as_count(depth, "--depth", 0), as_count(prompt, "--prompt", 0),
                                       as_count(options.n_gen, "--gen", 0), as_count(batch, "--batch", 1)};
        if (what.depth + what.n_prompt == 0) continue;  // generation needs something to go on from
        console.note(fmt::format("{}: batch {}, depth {}, prompt {}", engine.info().name, batch, depth, prompt));
        measure_case(engine, options, rates, what, lines);
      }
    }
  }
  return lines;
}

std::vector<std::string> models_of(const std::string& list) {
  std::vector<std::string> models;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) models.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return models;
}

int run(const BenchOptions& options, Console& console) {
  as_count(options.reps, "--reps", 1);
  as_count(options.warmup, "--warmup", 0);
  std::optional<runs::Store> store;
  if (options.save) store = open_early(options.db, console);
  runs::Document document{.verb = "bench", .sections = {}};
  std::vector<std::pair<std::string, Line>> all;
  for (const std::string& model : models_of(options.engine.model)) {
    EngineFlags flags = options.engine;
    flags.model = model;
    const auto begin = Clock::now();
    engine::EngineOptions open = engine_options(flags, console);
    open.weights_digest = options.save;
    const auto engine = open_engine(flags, std::move(open));
    Opened opened{.device = device_name(engine->info()),
                  .commit = std::string(commit()) + (commit_dirty() ? " (changed)" : "")};
    opened.open_s = seconds_since(begin);
    engine->measure({.n_prompt = 16});
    opened.first_token_s = seconds_since(begin);
    const auto rates = rates_of(options, opened.device);
    const std::vector<Line> lines = measure_model(*engine, options, rates, console);
    opened.host_bytes = host_peak_bytes();
    const runs::Section one = opened_section(engine->info(), opened, rates);
    if (document.sections.empty()) {
      document.sections.push_back(one);
    } else {
      document.sections[0].table.rows.push_back(one.table.rows[0]);
    }
    if (options.save && !lines.empty()) {
      if (!store) store.emplace(open_to_write(options.db, console));
      double busy = 0;
      for (const Line& line : lines) busy += line.busy / static_cast<double>(lines.size());
      console.note("stored as run " + save(*store, options, engine->info(), opened.device, lines, busy, console));
    }
    for (const Line& line : lines) all.emplace_back(engine->info().name, line);
  }
  if (all.empty()) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "nothing to measure",
                {.next = "give --prompt, --gen or --depth a number above 0"});
  }
  document.sections.push_back(section_of(all, options));
  print(console, document, options.output);
  if (store) store->close();
  return 0;
}

}  // namespace

Action declare_bench(Flags& flags) {
  auto options = std::make_shared<BenchOptions>();
  flags.group("What to measure");
  flags.counts("prompt", options->prompts, "N,…", "Tokens to prefill, 4k-128k*2 for example.");
  flags.count("gen", options->n_gen, "N", "Tokens to generate behind them, greedily.");
  flags.counts("depth", options->depths, "N,…", "Tokens in the cache before the prompt.");
  flags.counts("batch", options->batches, "N,…", "Sequences at once.");
  flags.count("reps", options->reps, "N", "Repetitions that are timed.");
  flags.count("warmup", options->warmup, "N", "Repetitions before them that are not.");
  flags.numbers("rates", options->rates, "TFLOPS,TBS",
                "The device's rates of bf16 products and memory, for the floor. Default: known for an H200.");
  declare_engine(flags, options->engine);
  flags.group("Storage");
  flags.toggle("save", options->save, "Store the rows in the database.");
  flags.text("name", options->name, "NAME", "A name for the stored run.").configurable = false;
  flags.text("note", options->note, "TEXT", "A note for people.").configurable = false;
  declare_db(flags, options->db);
  declare_output(flags, options->output);
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
