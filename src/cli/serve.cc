#include <random>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/http_server.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/site_flags.h"
#include "runs/report/svg.h"

namespace hayfork::cli {
namespace {

struct ServeVerb {
  int64_t port = 7777;
  std::string expose, token;
  SiteFlags site;
  DbOptions db;
};

std::string new_token() {
  std::random_device device;
  std::string out;
  for (int i = 0; i < 4; ++i) out += fmt::format("{:08x}", device());
  return out;
}

std::string message_page(const std::string& title, const std::string& text) {
  return "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>" + runs::xml_text(title) + "</title><h1>" +
         runs::xml_text(title) + "</h1><pre>" + runs::xml_text(text) +
         "</pre><p><a href=\"/\">Overview</a></p></html>\n";
}

// "/" and "/NAME.html"; runs that came since are there.
HttpAnswer answer(runs::Store& store, const ServeVerb& verb, const std::string& path, Console& console) {
  const bool index = path == "/";
  if (!index && (!path.starts_with("/") || !path.ends_with(".html"))) return {404, message_page("No such page", path)};
  try {
    runs::SiteOptions options = site_options(store, verb.site);
    options.digests = false;
    runs::Site site(store, std::move(options));
    if (auto page = site.page(index ? "index" : path.substr(1, path.size() - 6))) return {200, std::move(*page)};
    return {404, message_page("No such page", path)};
  } catch (const Error& error) {  // the next request may go well: a writer may have had the file
    console.error(error);
    return {500, message_page("The page cannot be made", error.render())};
  }
}

int serve(const ServeVerb& verb, Console& console) {
  if (verb.port < 0 || verb.port > 65535)
    throw Error(ErrorCode::usage, ErrorSubject::general, "--port: want 0 to 65535");
  if (!verb.token.empty() && verb.expose.empty())
    throw Error(ErrorCode::usage, ErrorSubject::general, "--token goes with --expose");
  if (!verb.token.empty() && (verb.token.size() < 16 || verb.token.find_first_of("; ,\"\\&#%+") != std::string::npos))
    throw Error(ErrorCode::usage, ErrorSubject::general, "--token: want 16 characters or more, letters and digits");
  runs::Store store = open_to_read(verb.db, console);
  site_options(store, verb.site);  // a wrong --runs is said now, not on the first page
  HttpOptions options{.port = static_cast<int>(verb.port), .policy = runs::content_policy()};
  if (!verb.expose.empty()) {
    options.address = verb.expose;
    options.token = verb.token.empty() ? new_token() : verb.token;
  }
  SignalGuard guard;
  HttpServer server(options);
  console.note(fmt::format("serving {} at {}  (Ctrl-C ends it)", verb.db.db, server.url()));
  server.run([&](const std::string& path) { return answer(store, verb, path, console); }, guard.flag());
  return guard.exit_status();
}

}  // namespace

Action declare_serve(Flags& flags) {
  auto options = std::make_shared<ServeVerb>();
  flags.group("Server");
  flags.count("port", options->port, "N", "Port of 127.0.0.1; 0: any that is free.");
  FlagInfo& expose =
      flags.text("expose", options->expose, "ADDRESS",
                 "Listen on this address (0.0.0.0: all) instead of 127.0.0.1. Every request needs the token "
                 "in the address that is printed.");
  expose.configurable = false;
  flags.text("token", options->token, "TEXT", "With --expose: this token instead of a random one.");
  declare_site_flags(flags, options->site);
  declare_db(flags, options->db);
  return [options](Console& console) { return serve(*options, console); };
}

}  // namespace hayfork::cli
