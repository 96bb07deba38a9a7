#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/units.h"
#include "cli/execute.h"
#include "cli/grid_view.h"
#include "cli/results.h"
#include "cli/verbs.h"

namespace hayfork::cli {
namespace {

namespace fs = std::filesystem;

struct DemoOptions {
  std::string out = "hayfork-demo";
  bool full = false;
  int32_t threads = 0;
};

struct Shown {
  runs::HeatGrid grid;
  std::string arch, run_id;
  int64_t reach_tokens = 0;  // 0: everything
  bool two_streams = false;
};

// Full attention and its windowed twin first; then whatever else is there, by name.
std::vector<fs::path> checkpoints(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (fs::exists(entry.path() / "config.json")) found.push_back(entry.path());
  }
  const auto rank = [](const fs::path& path) {
    const std::string name = path.filename().string();
    return std::pair(name == "full" ? 0 : name == "swa" ? 1 : 2, name);
  };
  std::sort(found.begin(), found.end(), [&](const fs::path& a, const fs::path& b) { return rank(a) < rank(b); });
  return found;
}

RunConfig demo_config(const DemoOptions& options, const fs::path& model) {
  RunConfig config;
  config.model = model.string();
  config.tasks = {"niah"};
  config.lengths =
      options.full ? std::vector<int64_t>{256, 512, 1024, 2048, 4096} : std::vector<int64_t>{256, 512, 1024, 2048};
  config.depths = options.full ? std::vector<double>{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100}
                               : std::vector<double>{0, 20, 40, 60, 80, 100};
  config.samples = options.full ? 10 : 3;
  config.task_options["niah-needles"] = options.full ? "5" : "3";
  return config;
}

void write_pictures(const fs::path& stem, const std::vector<runs::HeatGrid>& grids, const std::string& heading) {
  runs::HeatOptions how;
  how.heading = heading;
  const std::string svg = runs::heatmap_svg(grids, how);
  write_file_atomically(stem.string() + ".svg", svg);
  write_file_atomically(stem.string() + ".png", runs::svg_to_png(svg));
}

// Nothing when this build does not run the architecture.
std::optional<Shown> evaluate(const fs::path& model, const DemoOptions& options, runs::Store& store, EventLog& events,
                              Console& console) {
  ExecuteOptions execute;
  execute.engine.model = model.string();
  execute.engine.device = "cpu";
  execute.engine.threads = options.threads;
  execute.db.db = (fs::path(options.out) / "runs.db").string();
  execute.tags = {"demo"};
  std::optional<Plan> plan;
  try {
    plan.emplace(make_plan(demo_config(options, model), execute.engine, true, console, events.sink()));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    console.note(fmt::format("{} is left out: {}", model.filename().string(), error.what()));
    return std::nullopt;
  }
  const RunOutcome outcome = begin_and_execute(*plan, store, execute, events, console);
  if (outcome.status != 0) {
    throw Error(ErrorCode::internal, ErrorSubject::general, "the demo run did not end well",
                {.where = outcome.run_id,
                 .why = fmt::format("exit status {}", outcome.status),
                 .next = fmt::format("hayfork show {} --db {}", outcome.run_id, execute.db.db)});
  }
  const runs::RunView view = store.show_run(outcome.run);
  const TaskGrid grid = task_grid(store, view, view.tasks.at(0), "");
  const engine::ModelInfo& info = plan->engine->info();
  return Shown{grid.grid, view.model.arch_label.value_or(view.model.arch.value_or("?")), outcome.run_id,
               info.hidden_reach_tokens, info.arch == "orthros"};
}

std::string what_it_shows(const Shown& shown) {
  const double mean = runs::grid_mean(shown.grid).value_or(0) * 100;
  if (shown.two_streams) {
    return fmt::format("{:<8} {:3.0f} %  {}: prefill sees a window, the answer's rows read the whole context",
                       shown.grid.title, mean, shown.arch);
  }
  if (shown.reach_tokens > 0) {
    return fmt::format("{:<8} {:3.0f} %  {}: every layer sees a window, so only needles near the question are found",
                       shown.grid.title, mean, shown.arch);
  }
  return fmt::format("{:<8} {:3.0f} %  {}: reaches the whole context", shown.grid.title, mean, shown.arch);
}

int run(const DemoOptions& options, Console& console) {
  const auto start = std::chrono::steady_clock::now();
  const fs::path source = demo_dir();
  std::error_code error;
  fs::create_directories(options.out, error);
  if (error) {
    throw Error(ErrorCode::resource, ErrorSubject::disk, "cannot make the output folder",
                {.where = options.out, .why = error.message()});
  }
  const fs::path out = options.out;
  runs::Store store = runs::Store::open(out / "runs.db", runs::OpenMode::create_or_open, console.events());
  std::vector<Shown> all;
  for (const fs::path& model : checkpoints(source)) {
    EventLog events(console);
    std::optional<Shown> shown = evaluate(model, options, store, events, console);
    if (!shown) continue;
    write_pictures(out / ("niah-" + model.filename().string()), {shown->grid}, "");
    all.push_back(std::move(*shown));
  }
  if (all.empty())
    throw Error(ErrorCode::not_found, ErrorSubject::data, "no demo checkpoint could be run",
                {.where = source.string()});
  std::vector<runs::HeatGrid> grids;
  for (const Shown& shown : all) grids.push_back(shown.grid);
  write_pictures(out / "niah-all", grids, "Needle in a haystack: one needle asked for among others");
  store.close();
  console.out(grid_text(grids, {}, console));
  console.out(
      "\nWhat to look at: the needle's depth runs down, the context's length to the right; a bright cell means "
      "found.\n");
  for (const Shown& shown : all) console.out("  " + what_it_shows(shown) + "\n");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  console.out(fmt::format(
      "\n{}  pictures {}  (in {})\nnext  hayfork list runs --db {}\n      hayfork show {} --db {}\n      hayfork run "
      "--model M --tasks niah --lengths 512-4k*2 --depths 0-100+10\n",
      (out / "runs.db").string(), (out / "niah-all.png").string(), format_duration(seconds), (out / "runs.db").string(),
      all.front().run_id, (out / "runs.db").string()));
  return 0;
}

}  // namespace

Action declare_demo(Flags& flags) {
  auto options = std::make_shared<DemoOptions>();
  flags.text("out", options->out, "DIR", "Folder for runs.db and the pictures.").kind = "dir";
  flags.toggle("full", options->full, "A finer grid to 4,096 tokens, with more samples and needles.");
  flags.count("threads", options->threads, "N", "Threads. Default: every core this process may use.");
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
