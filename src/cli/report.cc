#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/units.h"
#include "base/utf8.h"
#include "cli/output.h"
#include "cli/site_flags.h"

namespace hayfork::cli {
namespace {

namespace fs = std::filesystem;

struct ReportVerb {
  std::string out;
  int64_t max_mb = 50;
  SiteFlags site;
  DbOptions db;
};

struct Written {
  std::string first;  // the file to open
  size_t n_pages = 0, n_bytes = 0;
  std::string sha256;
};

Written write_folder(runs::Site& site, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw Error(ErrorCode::resource, ErrorSubject::disk, "cannot make the report's folder",
                {.where = folder.string(), .why = error.message(), .next = "name another with -o"});
  }
  Written out{.first = (folder / "index.html").string()};
  Sha256Stream digest;
  for (const std::string& name : site.pages()) {
    const std::string page = site.page(name).value();
    write_file_atomically(folder / (name + ".html"), page);
    digest.update(name + " " + sha256_hex(page) + "\n");
    out.n_bytes += page.size();
    ++out.n_pages;
  }
  const Sha256 sum = digest.finish();
  out.sha256 = hex(sum);
  return out;
}

Written write_single(const std::string& page, const fs::path& file) {
  write_file_atomically(file, page);
  return {.first = file.string(), .n_pages = 1, .n_bytes = page.size(), .sha256 = sha256_hex(page)};
}

bool fits(const std::string& page, int64_t max_mb) {
  return page.size() <= static_cast<size_t>(max_mb) * 1'000'000;
}

// -o FILE.html: one file or an error. -o DIR: a folder. Nothing: one file when it is small enough, else a folder.
Written write(runs::Site& site, const ReportVerb& verb) {
  if (!verb.out.empty() && !verb.out.ends_with(".html")) return write_folder(site, verb.out);
  const std::string page = site.single_file();
  if (fits(page, verb.max_mb)) return write_single(page, verb.out.empty() ? "report.html" : verb.out);
  if (verb.out.empty()) return write_folder(site, "report");
  throw Error(ErrorCode::usage, ErrorSubject::general, "the report is too large for one file",
              {.where = verb.out,
               .why = fmt::format("{} with --max-mb {}", format_bytes(static_cast<double>(page.size())), verb.max_mb),
               .next = "name a folder with -o, or fewer runs (--newest) or samples (--samples-a-run)"});
}

int report(const ReportVerb& verb, Console& console) {
  if (verb.max_mb < 1) throw Error(ErrorCode::usage, ErrorSubject::general, "--max-mb: want 1 or more");
  runs::Store store = open_to_read(verb.db, console);
  const runs::SiteOptions options = site_options(store, verb.site);
  if (options.runs.empty()) {
    console.error(Error(ErrorCode::not_found, ErrorSubject::database, "no run to report on",
                        {.where = verb.db.db, .next = "hayfork list runs shows what there is"}));
    return 5;
  }
  const size_t n_runs = options.runs.size();
  runs::Site site(store, options);
  const Written written = write(site, verb);
  console.out(fmt::format("wrote {} ({}{} runs, {}, no external requests)  sha256 {}\n", printable(written.first),
                          written.n_pages > 1 ? fmt::format("+{} pages, ", written.n_pages - 1) : "", n_runs,
                          format_bytes(static_cast<double>(written.n_bytes)), written.sha256));
  if (options.n_runs_all > static_cast<int64_t>(n_runs))
    console.note(
        fmt::format("{} of {} runs; --newest 0 shows all, --runs and --filter choose", n_runs, options.n_runs_all));
  return 0;
}

}  // namespace

Action declare_report(Flags& flags) {
  auto options = std::make_shared<ReportVerb>();
  flags.group("Output");
  FlagInfo& out =
      flags.text("o,out", options->out, "DIR|FILE.html",
                 "A folder of pages, or one file. Default: report.html when it is small enough, else report/.");
  out.kind = "file";
  out.configurable = false;
  flags.count("max-mb", options->max_mb, "N", "Largest size of one file.");
  declare_site_flags(flags, options->site);
  declare_db(flags, options->db);
  return [options](Console& console) { return report(*options, console); };
}

}  // namespace hayfork::cli
