#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/units.h"
#include "cli/execute.h"
#include "cli/grid_view.h"
#include "cli/output.h"
#include "cli/site_flags.h"
#include "cli/verbs.h"
#include "runs/report/cross_table.h"

namespace hayfork::cli {
namespace {

namespace fs = std::filesystem;

struct DemoOptions {
  std::string out = "hayfork-demo";
  bool full = false;
  int32_t threads = 0;
};

struct Shown {
  runs::CrossSource source;
  runs::HeatGrid grid;
  std::string arch, run_id;
  int64_t reach_tokens = 0;  // 0: everything
  bool two_streams = false;
};

// Full attention and its windowed twin first; then whatever else is there, by name.
std::vector<fs::path> checkpoints(const fs::path& folder) {
  std::vector<fs::path> found;
  if (!fs::is_directory(folder)) return found;
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

// Needles, and the zoo's own documents (demo/tasks, demo/data): options, answers to write, loss.
RunConfig demo_config(const DemoOptions& options, const fs::path& model) {
  RunConfig config;
  config.model = model.string();
  config.tasks = {"niah"};
  const fs::path source = demo_dir();
  for (const char* name : {"which_number", "questions", "endings"})
    config.tasks.push_back((source / "tasks" / (std::string(name) + ".yaml")).string());
  config.tasks.emplace_back("corpus_loss");
  config.data_dir = (source / "data").string();
  config.task_options["corpus"] = "demo_corpus";
  if (!options.full) config.limit = 20;
  config.lengths =
      options.full ? std::vector<int64_t>{256, 512, 1024, 2048, 4096} : std::vector<int64_t>{256, 512, 1024, 2048};
  config.depths = options.full ? std::vector<double>{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100}
                               : std::vector<double>{0, 20, 40, 60, 80, 100};
  config.samples = options.full ? 10 : 5;
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

// Every run of the database as pages in one file.
std::string write_report(const fs::path& out) {
  runs::Store store = runs::Store::open(out / "runs.db", runs::OpenMode::read_only);
  const fs::path file = out / "report.html";
  write_file_atomically(file, runs::Site(store, site_options(store, {})).single_file());
  return file.string();
}

// The loss alone, of checkpoints that differ in size and training.
RunConfig loss_config(const DemoOptions& options, const fs::path& model) {
  RunConfig config = demo_config(options, model);
  config.tasks = {"corpus_loss"};
  config.lengths.clear();
  config.depths.clear();
  config.samples.reset();
  config.task_options.erase("niah-needles");
  return config;
}

struct Evaluated {
  runs::RunView view;
  engine::ModelInfo info;
};

// Nothing when this build does not run the architecture.
std::optional<Evaluated> evaluate(const RunConfig& config, const DemoOptions& options, runs::Store& store,
                                  EventLog& events, Console& console) {
  ExecuteOptions execute;
  execute.engine.model = config.model;
  execute.engine.device = "cpu";
  execute.engine.threads = options.threads;
  execute.db.db = (fs::path(options.out) / "runs.db").string();
  execute.tags = {"demo"};
  std::optional<Plan> plan;
  try {
    plan.emplace(make_plan(config, execute.engine, true, console, events.sink()));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    console.note(fmt::format("{} is left out: {}", fs::path(config.model).filename().string(), error.what()));
    return std::nullopt;
  }
  const RunOutcome outcome = begin_and_execute(*plan, store, execute, events, console);
  if (outcome.status != 0) {
    throw Error(ErrorCode::internal, ErrorSubject::general, "the demo run did not end well",
                {.where = outcome.run_id,
                 .why = fmt::format("exit status {}", outcome.status),
                 .next = fmt::format("hayfork show {} --db {}", outcome.run_id, execute.db.db)});
  }
  return Evaluated{store.show_run(outcome.run), plan->engine->info()};
}

Shown shown_of(runs::Store& store, Evaluated evaluated) {
  runs::RunView& view = evaluated.view;
  TaskGrid grid = task_grid(store, view, view.tasks.at(0), "");
  Shown shown{.source = {},
              .grid = std::move(grid.grid),
              .arch = view.model.arch_label.value_or(view.model.arch.value_or("?")),
              .run_id = view.run.run_id,
              .reach_tokens = evaluated.info.hidden_reach_tokens,
              .two_streams = evaluated.info.arch == "orthros"};
  shown.source = {view.model.name, {std::move(view)}};
  return shown;
}

void print_table(runs::Store& store, const std::vector<runs::CrossSource>& sources, const std::string& title,
                 Console& console) {
  runs::CrossTable cross = runs::cross_table(store, sources, runs::task_columns(sources, {}, {}), {});
  runs::Section section{
      .name = "table", .table = runs::people_table(cross, false), .title = title, .notes = cross.notes};
  drop_empty_columns(section.table, {"D", "group"});
  print(console, {"demo", {std::move(section)}}, {});
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

// Pictures, grids in the terminal, and tables of what was evaluated; with --full also the series of sizes.
void show_all(const std::vector<Shown>& all, runs::Store& store, const DemoOptions& options, Console& console) {
  std::vector<runs::HeatGrid> grids;
  std::vector<runs::CrossSource> sources, sizes;
  for (const Shown& shown : all) {
    grids.push_back(shown.grid);
    sources.push_back(shown.source);
  }
  for (const fs::path& model : options.full ? checkpoints(demo_dir() / "scaling") : std::vector<fs::path>()) {
    EventLog events(console);
    auto evaluated = evaluate(loss_config(options, model), options, store, events, console);
    if (evaluated) sizes.push_back({evaluated->view.model.name, {std::move(evaluated->view)}});
  }
  write_pictures(fs::path(options.out) / "niah-all", grids, "Needle in a haystack: one needle asked for among others");
  console.out(grid_text(grids, {}, console) + "\n");
  print_table(store, sources, "The same models on the zoo's own documents (* best of its column by a paired test)",
              console);
  if (!sizes.empty()) {
    console.out("\n");
    print_table(store, sizes, "Full attention by size and training tokens", console);
  }
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
    auto evaluated = evaluate(demo_config(options, model), options, store, events, console);
    if (!evaluated) continue;
    all.push_back(shown_of(store, std::move(*evaluated)));
    write_pictures(out / ("niah-" + model.filename().string()), {all.back().grid}, "");
  }
  if (all.empty())
    throw Error(ErrorCode::not_found, ErrorSubject::data, "no demo checkpoint could be run",
                {.where = source.string()});
  show_all(all, store, options, console);
  store.close();
  const std::string report = write_report(out);
  console.out(
      "\nWhat to look at: the needle's depth runs down, the context's length to the right; a bright cell means "
      "found. which_number and questions ask for a number told anywhere in a text, endings needs no far context, and "
      "corpus_loss is low where sentences that come again are known again.\n");
  for (const Shown& shown : all) console.out("  " + what_it_shows(shown) + "\n");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  console.out(fmt::format(
      "\n{0}  pictures {1}  report {5}  (in {2})\nnext  hayfork list runs --db {0}\n      hayfork show {3} --db {0}\n"
      "      hayfork table --db {0}\n"
      "      hayfork run --model M --tasks niah --lengths 512-4k*2 --depths 0-100+10\n"
      "      hayfork run --model M --tasks {4}\n",
      (out / "runs.db").string(), (out / "niah-all.png").string(), format_duration(seconds), all.front().run_id,
      (source / "tasks" / "which_number.yaml").string(), report));
  return 0;
}

}  // namespace

Action declare_demo(Flags& flags) {
  auto options = std::make_shared<DemoOptions>();
  flags.text("out", options->out, "DIR", "Folder for runs.db, the pictures and the report.").kind = "dir";
  flags.toggle("full", options->full,
               "A finer grid to 4,096 tokens, all documents, and the loss of models by size and training.");
  flags.count("threads", options->threads, "N", "Threads. Default: every core this process may use.");
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
