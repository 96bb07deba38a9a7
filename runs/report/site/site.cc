#include "runs/report/site/site.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/digest.h"
#include "base/error.h"
#include "base/version.h"
#include "runs/pairing.h"
#include "runs/report/site/pages.h"

namespace hayfork::runs {

extern const char* const kSiteCss;  // site.css, site.js: see cmake/EmbedText.cmake
extern const char* const kSiteJs;

namespace {

struct FixedPage {
  const char *name, *title;
  void (*write)(PageContext&, Html&);
};

constexpr std::array<FixedPage, 7> kFixed = {{{"index", "Overview", index_page},
                                              {"niah", "Needle", niah_page},
                                              {"lengths", "Length", lengths_page},
                                              {"architectures", "Architecture", architectures_page},
                                              {"scaling", "Scaling", scaling_page},
                                              {"timeline", "Timeline", timeline_page},
                                              {"search", "Search", search_page}}};

std::string base64(std::span<const unsigned char> bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j) word = word << 8 | (j < n ? bytes[i + j] : 0u);
    for (size_t j = 0; j < 4; ++j) out += j <= n ? kDigits[word >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

std::string source_digest(std::string_view text) {
  return "'sha256-" + base64(sha256(text)) + "'";
}

bool is_finished(const RunView& run) {
  return (run.status == "done" || run.status == "imported" || run.status == "partial") &&
         std::find(run.tags.begin(), run.tags.end(), "confirm") == run.tags.end();
}

void choose_baseline(PageContext& page) {
  const auto take = [&](int64_t run, const std::string& why) {
    page.baseline = page.store.show_run(run);
    page.baseline_why = why;
  };
  if (page.options.baseline) return take(*page.options.baseline, "as asked for");
  std::vector<BaselineListRow> set;
  for (BaselineListRow& row : page.store.list_baselines()) {
    if (row.run_id && (row.name == "main" || set.empty() || set.front().name != "main"))
      set.insert(row.name == "main" ? set.begin() : set.end(), std::move(row));
  }
  if (!set.empty() && (set.size() == 1 || set.front().name == "main"))
    return take(page.store.find_run(*set.front().run_id).id, "the baseline " + set.front().name);
  for (auto run = page.runs.rbegin(); run != page.runs.rend(); ++run) {
    if (!is_finished(*run)) continue;
    page.baseline = *run;
    page.baseline_why = "the oldest run shown";
    return;
  }
}

}  // namespace

const std::string& content_policy() {
  static const std::string kPolicy = "default-src 'none'; style-src " + source_digest(kSiteCss) + "; script-src " +
                                     source_digest(kSiteJs) + "; img-src data:; base-uri 'none'; form-action 'none'";
  return kPolicy;
}

std::string page_stem(std::string_view run_id) {
  std::string out;
  for (const char c : run_id) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    out += plain ? std::string(1, c) : fmt::format("_{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

// ---- What pages ask ------------------------------------------------------------------------------------------------

std::string PageContext::href(const std::string& page, const std::string& anchor) const {
  if (single_file) return "#" + (anchor.empty() ? page : anchor);
  return page + ".html" + (anchor.empty() ? "" : "#" + anchor);
}

void PageContext::run_link(Html& html, const std::string& run_id) const {
  if (has_run(run_id)) return html.link(href("run-" + page_stem(run_id)), run_id, {{"class", "run"}});
  html.element("span", {{"class", "run"}}, run_id);
}

const RunView* PageContext::run_with(const CrossSource& model, const std::string& task) {
  for (const RunView& run : model.runs) {
    if (find_run_task(run, task) != nullptr) return &run;
  }
  return nullptr;
}

// ---- The site ------------------------------------------------------------------------------------------------------

struct Site::Impl {
  SiteOptions options;
  PageReader reader;
  PageContext context;
  std::vector<std::pair<std::string, std::string>> digests;  // run id, digest
  std::optional<RunView> other;                              // the run asked for that is not among those shown

  Impl(Store& store, SiteOptions site_options)
      : options(std::move(site_options)), reader(store.path()), context{store, reader, options} {
    std::vector<RunView> finished;
    for (const int64_t run : options.runs) {
      context.runs.push_back(store.show_run(run));
      context.run_ids.insert(context.runs.back().run.run_id);
      if (is_finished(context.runs.back())) finished.push_back(context.runs.back());
    }
    context.models = model_sources(std::move(finished));
    for (const CrossSource& model : context.models)
      context.marks.of(model.label, model.runs.front().model.arch.value_or(""));
    choose_baseline(context);
    if (!options.digests) return;
    for (const RunView& run : context.runs) digests.emplace_back(run.run.run_id, store.digest(run.run.id).sha256);
  }

  const RunView* find(std::string_view stem) {
    for (const RunView& run : context.runs) {
      if (page_stem(run.run.run_id) == stem) return &run;
    }
    if (other && page_stem(other->run.run_id) == stem) return &*other;
    if (options.n_runs_all <= static_cast<int64_t>(context.runs.size())) return nullptr;
    for (const RunListRow& row : context.store.list_runs()) {  // a run of the database that the site does not show
      if (page_stem(row.run_id) == stem) return &other.emplace(context.store.show_run(row.run));
    }
    return nullptr;
  }

  // The run of "run-<stem>" and "samples-<stem>".
  const RunView* run_of(std::string_view name, std::string_view kind) {
    return name.starts_with(kind) ? find(name.substr(kind.size())) : nullptr;
  }

  // What stands in <main>; false when there is no such page.
  bool write(std::string_view name, Html& html) {
    for (const FixedPage& page : kFixed) {
      if (name == page.name) return page.write(context, html), true;
    }
    if (const RunView* run = run_of(name, "run-")) return run_page(context, *run, html), true;
    if (const RunView* run = run_of(name, "samples-")) return samples_page(context, *run, html), true;
    return false;
  }

  std::string title_of(std::string_view name) {
    for (const FixedPage& page : kFixed) {
      if (name == page.name) return page.title;
    }
    const bool samples = name.starts_with("samples-");
    const RunView* run = run_of(name, samples ? "samples-" : "run-");
    return (samples ? "Samples of " : "Run ") + (run == nullptr ? std::string() : run->run.run_id);
  }

  void head(Html& html, const std::string& title) const {
    html.open("head");
    html.single("meta", {{"charset", "utf-8"}});
    html.single("meta", {{"http-equiv", "Content-Security-Policy"}, {"content", content_policy()}});
    html.single("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
    html.single("meta", {{"name", "color-scheme"}, {"content", "light dark"}});
    html.single("meta", {{"name", "referrer"}, {"content", "no-referrer"}});
    html.single("link", {{"rel", "icon"}, {"href", "data:,"}});
    html.element("title", title + " – Hayfork");
    html.graphic(Graphic(std::string("<style>") + kSiteCss + "</style><script>" + kSiteJs + "</script>\n"));
    html.close();
  }

  void navigation(Html& html, std::string_view current) const {
    html.open("header", {{"class", "top"}});
    html.link("#main", "Skip to the content", {{"class", "skip"}});
    html.link(context.href("index"), "Hayfork", {{"class", "brand"}});
    html.open("nav", {{"aria-label", "Pages"}});
    for (const FixedPage& page : kFixed) {
      if (page.name == current)
        html.link(context.href(page.name), page.title, {{"aria-current", "page"}});
      else
        html.link(context.href(page.name), page.title);
    }
    html.close();
    html.close();
  }

  void footer(Html& html, std::string_view current) {
    html.open("footer");
    html.element("p", fmt::format("hayfork {} · database schema {} · {} run{}", version(), schema_version(),
                                  context.runs.size(), context.runs.size() == 1 ? "" : "s"));
    std::vector<std::pair<std::string, std::string>> shown = digests;
    if (const RunView* run = run_of(current, "run-"); run != nullptr && !options.digests)
      shown = {{run->run.run_id, context.store.digest(run->run.id).sha256}};
    if (!shown.empty()) {
      html.open("details");
      html.element("summary", "digests of what the runs hold (hayfork db digest)");
      html.open("ul", {{"class", "digests"}});
      for (const auto& [run, digest] : shown) {
        html.open("li");
        html.element("span", {{"class", "run"}}, run);
        html.text(" ");
        html.element("code", digest);
        html.close();
      }
      html.close();
      html.close();
    }
    html.close();
  }

  std::string document(const std::string& title, std::string_view current, const Graphic& content) {
    Html html;
    html.graphic(Graphic("<!doctype html>\n"));
    html.open("html", {{"lang", "en"}});
    head(html, title);
    html.open("body");
    navigation(html, current);
    html.open("main", {{"id", "main"}});
    html.graphic(content);
    html.close();
    footer(html, current);
    html.close();
    html.close();
    return html.take() + "\n";
  }
};

Site::Site(Store& store, SiteOptions options) : impl_(std::make_unique<Impl>(store, std::move(options))) {}
Site::~Site() = default;

std::vector<std::string> Site::pages() const {
  std::vector<std::string> names;
  for (const FixedPage& page : kFixed) names.emplace_back(page.name);
  for (const RunView& run : impl_->context.runs) {
    names.push_back("run-" + page_stem(run.run.run_id));
    if (impl_->options.samples != ShownSamples::none) names.push_back("samples-" + page_stem(run.run.run_id));
  }
  return names;
}

std::optional<std::string> Site::page(std::string_view name) {
  Html html;
  impl_->context.single_file = false;
  impl_->context.n_charts = 0;
  if (!impl_->write(name, html)) return std::nullopt;
  return impl_->document(impl_->title_of(name), name, Graphic(html.take()));
}

std::string Site::single_file() {
  Html html;
  impl_->context.single_file = true;
  impl_->context.n_charts = 0;
  for (const std::string& name : pages()) {
    html.open("section", {{"class", "page"}, {"id", name}, {"data-title", impl_->title_of(name)}});
    impl_->write(name, html);
    html.close();
  }
  return impl_->document("Results", "", Graphic(html.take()));
}

}  // namespace hayfork::runs
