#include "tests/support/made_site.h"

#include <cmath>

#include "base/digest.h"
#include "metrics/estimate_row.h"
#include "runs/provenance.h"
#include "runs/store.h"
#include "runs/token_losses.h"

namespace hayfork::test {
namespace {

using runs::SampleRow;

struct Model {
  const char *arch, *label;
  double reach;  // context length from which answers go wrong
};

constexpr Model kModels[] = {{"full", "Full attention", 9000},
                             {"swa", "SWA 128", 300},
                             {"gdn", "Gated DeltaNet", 1500},
                             {"mamba2", "Mamba-2", 700},
                             {"orthros", "Orthros 128", 3000}};
constexpr int64_t kLengths[] = {512, 1024, 2048, 4096};
constexpr double kDepths[] = {0, 25, 50, 75, 100};

runs::RunIdentity identity(const std::string& model, const std::string& arch, const std::string& label) {
  runs::RunIdentity id;
  id.model.name = model;
  id.model.arch = arch;
  id.model.arch_label = label;
  id.model.weights_sha256 = sha256_hex(model);
  id.model.config_sha256 = sha256_hex("config " + model);
  id.model.tokenizer_sha256 = sha256_hex("tokenizer");
  id.model.n_params = 3'200'000;
  id.model.n_params_noemb = 2'900'000;
  id.model.train_tokens = 1'300'000'000;
  id.model.path = "demo/" + arch;
  for (int64_t layer = 0; layer < 8; ++layer) {
    id.layers.push_back({0, layer, arch == "swa" ? "swa" : layer % 4 == 3 ? "full" : arch, {}, "rope", 8, 2, 32});
    if (arch == "swa") id.layers.back().window = 128;
  }
  id.host.hostname = "workbench";
  id.host.cpu = "a processor";
  id.plan_sha256 = sha256_hex("plan " + model);
  id.numerics_id = "cpu/1";
  id.dtype = "f32";
  id.seed = 0;
  id.cli_json = R"(["run","--model","demo/)" + arch + R"(","--tasks","niah,ruler_vt","--note","it's"])";
  return id;
}

runs::PlannedTask task(const std::string& name, const std::string& family, const std::string& kind,
                       const std::string& metric, int64_t n) {
  runs::PlannedTask out;
  out.task.name = name;
  out.task.family = family;
  out.task.version = "1";
  out.task.kind = kind;
  out.task.primary_metric = metric;
  out.task.higher_is_better = kind != "longppl" && kind != "rolling";
  out.task.config_json = "{}";
  out.task.protocol = "made/" + name + "/1";
  out.metric_defs = {{0, metric, out.task.higher_is_better, "mean", {}}};
  out.n_planned = n;
  return out;
}

// Right or wrong as a function of the arguments alone: nearly always right within reach, seldom beyond.
bool is_right(const Model& model, int64_t length, int64_t document) {
  const double odds = static_cast<double>(length) < model.reach ? 0.97 : 0.25;
  const auto draw = static_cast<double>(static_cast<uint64_t>(document * 2654435761 + length * 97) % 1000) / 1000;
  return draw < odds;
}

runs::MetricRow mean_row(const std::string& slice, const std::string& metric, const std::vector<double>& values) {
  runs::MetricRow row;
  row.slice = slice;
  row.metric = metric;
  if (values.empty()) return row;
  metrics::put_estimate(row, metrics::estimate_mean(values));
  return row;
}

SampleRow grid_sample(const Model& model, int64_t run_task, const std::string& name, int64_t i, int64_t length,
                      double depth) {
  SampleRow row;
  const bool right = is_right(model, length, i);
  const std::string city = i % 3 == 0 ? "Lisbon" : i % 3 == 1 ? "Oslo" : "Quito";
  row.run_task = run_task;
  row.doc_id = std::to_string(i);
  row.doc_sha256 = sha256_hex(name + std::to_string(i));
  row.prompt_sha256 = sha256_hex("prompt " + row.doc_sha256);
  row.ctx_len = length;
  row.depth_pct = depth;
  row.depth_real = depth + 0.2;
  row.prompt_text = runs::StoredText{"Some text. The secret of the day is " + city +
                                     ". More text follows, as it does. The secret is"};
  row.prompt_tokens = length - 8;
  row.gen_tokens = 3;
  row.batch_size = 4;
  row.target = city;
  row.response = runs::StoredText{" the city of " + (right ? city : std::string("Perth")) + ", as it was said."};
  row.answer = right ? city : "Perth";
  row.score = right ? 1 : 0;
  row.finish = "stop";
  row.t_prefill_ms = static_cast<double>(length) * 0.05;
  row.t_decode_ms = 6;
  row.metrics = {{.metric = "acc", .value = row.score}};
  if (model.arch == std::string("mamba2") && i == 7) {
    row.status = "failed";
    row.error = "NaN logits in layer 3";
    row.score.reset();
    row.metrics.clear();
  }
  return row;
}

// A grid task: per cell `each` samples, aggregates over all and by length.
void write_grid(runs::Store& store, int64_t run_task, const Model& model, const std::string& name,
                const std::string& metric, int64_t each) {
  std::vector<double> all;
  std::vector<runs::MetricRow> rows;
  int64_t i = 0;
  for (const int64_t length : kLengths) {
    std::vector<double> here;
    for (const double depth : kDepths) {
      for (int64_t k = 0; k < each; ++k, ++i) {
        SampleRow row = grid_sample(model, run_task, name, i, length, depth);
        if (row.score) here.push_back(*row.score);
        store.add_sample(std::move(row));
      }
    }
    all.insert(all.end(), here.begin(), here.end());
    rows.push_back(mean_row("ctx_len=" + std::to_string(length), metric, here));
  }
  rows.push_back(mean_row("", metric, all));
  store.set_metrics(run_task, rows);
  store.finish_task(run_task, "done", 12.5);
}

void write_choices(runs::Store& store, int64_t run_task, int64_t right_of_ten, const std::string& answer) {
  std::vector<double> all;
  for (int64_t i = 0; i < 60; ++i) {
    SampleRow row;
    const bool right = i % 10 < right_of_ten;
    row.run_task = run_task;
    row.doc_id = "q" + std::to_string(i);
    row.doc_sha256 = sha256_hex("question " + std::to_string(i));
    row.prompt_sha256 = row.doc_sha256;
    row.prompt_text = runs::StoredText{"Question: which one?\nAnswer:"};
    row.answer = answer;
    row.response = runs::StoredText{answer};
    row.target = "1";
    row.score = right ? 1 : 0;
    row.metrics = {{.metric = "acc", .value = row.score}};
    for (int64_t c = 0; c < 3; ++c)
      row.choices.push_back({.choice = c,
                             .logprob = -2.0 - static_cast<double>((c + i) % 3) * (right ? 1 : 0.5),
                             .n_tokens = 3,
                             .gold = c == 1});
    all.push_back(*row.score);
    store.add_sample(std::move(row));
  }
  store.set_metrics(run_task, std::vector{mean_row("", "acc", all)});
  store.finish_task(run_task, "done", 3.0);
}

std::string write_model(runs::Store& store, const Model& model) {
  const std::vector<runs::PlannedTask> tasks = {task("niah", "niah", "generate", "acc", 200),
                                                task("ruler_vt", "ruler", "generate", "acc", 60),
                                                task("arc_easy", "commonsense", "choice", "acc", 60)};
  const runs::RunHandle handle =
      store.begin_run(identity(std::string(model.arch) + "-3m", model.arch, model.label), tasks);
  write_grid(store, handle.run_tasks[0], model, "niah", "acc", 10);
  write_grid(store, handle.run_tasks[1], model, "ruler_vt", "acc", 3);
  write_choices(store, handle.run_tasks[2], model.arch == std::string("swa") ? 4 : 6, "the second");
  store.flush();
  if (model.arch == std::string("mamba2"))
    store.add_event(handle.run, {Event::Level::warn, "HAY-W014", "one sample failed: NaN logits", "niah"});
  store.finish_run(handle.run, {.status = model.arch == std::string("mamba2") ? "partial" : "done",
                                .exit_code = 0,
                                .wall_s = 65.0,
                                .peak_mem_bytes = 180 << 20});
  return handle.run_id;
}

// ---- A series over training steps, judged by gates -----------------------------------------------------------------

std::vector<std::string> write_series(runs::Store& store) {
  std::vector<std::string> ids;
  std::vector<int64_t> rows;
  const int64_t right[] = {3, 5, 6, 4, 7, 7};
  const char* verdicts[] = {"", "better", "same?", "worse", "better", "too few"};
  for (int64_t step = 0; step < 6; ++step) {
    runs::RunIdentity id = identity("nightly-" + std::to_string(step), "hybrid", "Hybrid 1:3");
    id.model.series = "nightly";
    id.model.train_step = (step + 1) * 10'000;
    id.tags = {"nightly"};
    const runs::RunHandle handle =
        store.begin_run(id, std::vector{task("arc_easy", "commonsense", "choice", "acc", 60)});
    write_choices(store, handle.run_tasks[0], right[step], "the second");
    store.flush();
    store.finish_run(handle.run, {.status = "done", .exit_code = 0, .wall_s = 10.0});
    ids.push_back(handle.run_id);
    rows.push_back(handle.run);
    if (step == 0) continue;
    runs::ComparisonRow c;
    c.base = rows[0];
    c.cand = handle.run;
    c.task = "arc_easy";
    c.metric = "acc";
    c.test = "mcnemar-exact";
    c.n_pairs = 60;
    c.delta = static_cast<double>(right[step] - right[0]) / 10;
    c.ci_low = *c.delta - 0.1;
    c.ci_high = *c.delta + 0.1;
    c.p = c.p_adj = 0.01;
    c.verdict = verdicts[step];
    const bool failed = c.verdict == "worse";
    store.add_gate({.cand = handle.run,
                    .base = rows[0],
                    .baseline_name = "nightly",
                    .policy_sha256 = "00",
                    .policy_text = "rules: []",
                    .verdict = failed ? "fail" : "pass",
                    .exit_code = failed ? 1 : 0},
                   std::vector{c});
  }
  store.set_baseline("nightly", rows[0], {});
  store.set_baseline("nightly", rows[2], {});
  return ids;
}

// ---- Documents with a loss for each token
// ----------------------------------------------------------------------------

// Document 3 has 400 tokens, document 4 has 40; a token is a word with the blank before it. Key: tokens 4 and 5 of
// both, which doc3's and doc4's rows of key_tokens name.
SampleRow loss_sample(int64_t run_task, int64_t document, float shift) {
  SampleRow row;
  row.run_task = run_task;
  row.doc_id = std::to_string(document);
  row.doc_sha256 = "doc" + std::to_string(document);
  row.prompt_sha256 = sha256_hex(row.doc_sha256);
  std::string text;
  std::vector<float> nll;
  std::vector<runs::TextRange> places;
  for (int32_t i = 0; i < (document == 3 ? 400 : 40); ++i) {
    const auto begin = static_cast<int32_t>(text.size());
    text += (i > 0 ? " w" : "w") + std::to_string(100 + i);
    places.emplace_back(begin, static_cast<int32_t>(text.size()));
    nll.push_back(i == 0 ? NAN : static_cast<float>(i % 7) * 0.5F + shift);
  }
  row.prompt_text = runs::StoredText{text};
  row.prompt_tokens = static_cast<int64_t>(nll.size());
  row.artefacts = {runs::token_nll_artefact(nll), runs::token_places_artefact(places)};
  return row;
}

// ---- LongPPL and a loss by size and tokens, a search
// --------------------------------------------------------------------------

std::vector<std::string> write_scaling(runs::Store& store) {
  std::vector<std::string> ids;
  for (const char* arch : {"full", "swa"}) {
    for (const double n : {15e6, 31e6, 65e6}) {
      for (const double tokens_per : {100.0, 300.0, 1000.0}) {
        if (arch == std::string("swa") && n > 20e6) continue;  // too few for a fit
        runs::RunIdentity id = identity(std::string("scaling-") + arch + std::to_string(ids.size()), arch, arch);
        id.model.n_params_noemb = static_cast<int64_t>(n);
        id.model.train_tokens = static_cast<int64_t>(n * tokens_per);
        const double corpus_loss = 20 * std::pow(n, -0.2) + 300 * std::pow(n * tokens_per, -0.3);
        const runs::RunHandle handle =
            store.begin_run(id, std::vector{task("longppl", "longppl", "longppl", "longppl", 40),
                                            task("corpus_loss", "rolling", "rolling", "loss_token", 30)});
        runs::MetricRow row;
        row.metric = "longppl";
        row.n = 40;
        row.value = std::exp(200 * std::pow(n, -0.3) + 400 * std::pow(n * tokens_per, -0.25));
        row.ci_low = *row.value * 0.96;
        row.ci_high = *row.value * 1.04;
        store.set_metrics(handle.run_tasks[0], std::vector{row});
        for (const int64_t document : {3, 4}) {
          if (ids.size() < 2) store.add_sample(loss_sample(handle.run_tasks[0], document, ids.empty() ? 0.5F : 0.25F));
        }
        runs::MetricRow loss;
        loss.metric = "loss_token";
        loss.n = 30;
        loss.value = corpus_loss;
        store.set_metrics(handle.run_tasks[1], std::vector{loss});
        for (const int64_t run_task : handle.run_tasks) store.finish_task(run_task, "done");
        store.flush();
        store.finish_run(handle.run, {.status = "done", .exit_code = 0});
        ids.push_back(handle.run_id);
      }
    }
  }
  for (int64_t i = 0; i < 5; ++i)
    store.put_key_tokens({"doc" + std::to_string(i), "e", "p", i < 3 ? "[]" : "[[19,29]]", i * 5});
  return ids;
}

void write_search(runs::Store& store, const std::string& run_id) {
  const runs::RunRow run = store.find_run(run_id);
  const int64_t search =
      store.begin_search({.run = run.id, .model_id = run.model_id, .algo = "nsga2", .seed = 3, .space_json = "{}"});
  for (int64_t i = 0; i < 12; ++i) {
    std::vector<runs::SparseLayerRow> layers;
    for (int64_t layer = 0; layer < 24; ++layer) {
      const bool full = layer % 6 == 5 && i < 6;
      layers.push_back({0, layer, full ? "full" : "window",
                        full ? runs::OptInt() : runs::OptInt(64 << (layer * 7 + i) % 5), 4,
                        layer % 2 == 0 ? runs::OptInt(128 * (i % 4)) : runs::OptInt(), 1});
    }
    const std::string label = "w" + std::to_string(64 + i * 16);
    const int64_t sparse =
        store.add_sparse({.label = label, .config_json = "{\"n\":" + std::to_string(i) + "}"}, layers);
    runs::SearchPointRow point;
    point.search_id = search;
    point.n = i;
    point.generation = i / 4;
    point.sparse_id = sparse;
    point.on_front = i % 3 == 0;
    point.cost_ms = 100.0 / (1 + 0.1 * static_cast<double>(i));
    point.quality = -0.0004 * static_cast<double>(i * i) - (point.on_front ? 0 : 0.02);
    point.quality_lo = *point.quality - 0.01;
    if (point.on_front) point.held_out = *point.quality - 0.002;
    store.put_search_point(point);
  }
}

// ---- Texts made to break pages -------------------------------------------------------------------------------------

std::string write_hostile(runs::Store& store) {
  runs::RunIdentity id =
      identity("m<script>document.title='owned'</script>", "x\"><img src=x onerror=alert(1)>", "<b>arch</b>");
  id.name = hostile_text();
  id.note = hostile_text();
  id.tags = {"<i>tag</i>"};
  id.cli_json = R"(["run","--note","</script><script>document.title='owned'</script>"])";
  runs::PlannedTask planned = task("niah", "niah", "generate", "acc", 3);
  planned.task.name = "t</title><script>document.title='owned'</script>";
  const runs::RunHandle handle = store.begin_run(id, std::vector{planned});
  const std::string texts[] = {hostile_text(),
                               "</script><script>document.title='owned'</script>" + std::string(1'000'000, 'x') + "end",
                               "=cmd|' /C calc'!A0"};
  for (int64_t i = 0; i < 3; ++i) {
    SampleRow row;
    row.run_task = handle.run_tasks[0];
    row.doc_id = "<s>" + std::to_string(i);
    row.doc_sha256 = sha256_hex("hostile" + std::to_string(i));
    row.prompt_sha256 = row.doc_sha256;
    row.subtask = "\"'><script>1</script>";
    row.prompt_text = runs::StoredText{texts[i]};
    row.response = runs::StoredText{texts[i]};
    row.answer = texts[i].substr(0, 100);
    row.target = hostile_text();
    row.score = 0;
    row.metrics = {{.metric = "acc", .value = 0.0}};
    store.add_sample(std::move(row));
  }
  store.set_metrics(handle.run_tasks[0], std::vector{mean_row("", "acc", {0, 0, 0})});
  store.finish_task(handle.run_tasks[0], "done");
  store.flush();
  store.add_event(handle.run, {Event::Level::warn, "HAY-W099", hostile_text(), ""});
  store.finish_run(handle.run, {.status = "done", .exit_code = 0});
  return handle.run_id;
}

}  // namespace

std::string hostile_text() {
  return std::string(
             "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> &amp; \"q\" 'a' ") +
         std::string("\0", 1) +
         " \xE2\x80\xA8 \xE2\x80\xAE txet \xE2\x81\xA6 \x1b[31m \xff\xfe =1+1 @SUM(A1) \\end{document}";
}

MadeSite make_site(const std::filesystem::path& file) {
  runs::Store store = runs::Store::open(file, runs::OpenMode::create_or_open);
  MadeSite out;
  for (const Model& model : kModels) out.models.push_back(write_model(store, model));
  out.series = write_series(store);
  out.scaling = write_scaling(store);
  write_search(store, out.models[0]);
  out.hostile = write_hostile(store);
  store.set_baseline("main", store.find_run(out.models[0]).id, {});
  store.close();
  return out;
}

}  // namespace hayfork::test
