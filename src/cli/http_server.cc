#include "cli/http_server.h"

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "base/error.h"

namespace hayfork::cli {
namespace {

constexpr const char* kHtml = "text/html; charset=utf-8";
constexpr const char* kCookie = "hayfork_token=";
using Handled = httplib::Server::HandlerResponse;

// Without leaving early: how long it takes says nothing about how much was right.
bool same_secret(const std::string& a, const std::string& b) {
  unsigned char differs = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    differs |= static_cast<unsigned char>(a[i] ^ (b.empty() ? '\1' : b[i % b.size()]));
  return differs == 0;
}

std::string cookie_token(const httplib::Request& request) {
  const std::string cookies = request.get_header_value("Cookie");
  for (size_t at = 0; at < cookies.size();) {
    size_t end = cookies.find(';', at);
    if (end == std::string::npos) end = cookies.size();
    while (at < end && cookies[at] == ' ') ++at;
    if (cookies.compare(at, std::char_traits<char>::length(kCookie), kCookie) == 0)
      return cookies.substr(at + std::char_traits<char>::length(kCookie),
                            end - at - std::char_traits<char>::length(kCookie));
    at = end + 1;
  }
  return "";
}

std::string bearer_token(const httplib::Request& request) {
  const std::string value = request.get_header_value("Authorization");
  return value.starts_with("Bearer ") ? value.substr(7) : "";
}

// A Host or Origin that can only be this server: a loopback name, with its port.
bool is_own(std::string host, int port) {
  if (host.starts_with("http://")) host.erase(0, 7);
  const std::string end = ":" + std::to_string(port);
  for (const char* name : {"127.0.0.1", "localhost", "[::1]"}) {
    if (host == name + end || (port == 80 && host == name)) return true;
  }
  return false;
}

void refuse(httplib::Response& response, int status, const char* why) {
  response.status = status;
  response.set_content(fmt::format("<!doctype html><title>{0}</title><p>{0} {1}\n", status, why), kHtml);
}

}  // namespace

struct HttpServer::Impl {
  HttpOptions options;
  httplib::Server server;
  std::mutex answering;

  // 127.0.0.1's own pages ask for them by its name; anything else is someone else's page, or a name made to point here.
  bool is_trusted(const httplib::Request& request, httplib::Response& response) const {
    if (!options.token.empty()) return true;  // the token decides
    const bool host =
        request.get_header_value_count("Host") == 1 && is_own(request.get_header_value("Host"), options.port);
    const bool origin = !request.has_header("Origin") || is_own(request.get_header_value("Origin"), options.port);
    if (!host || !origin) refuse(response, 403, "This address serves its own pages alone.");
    return host && origin;
  }

  bool has_token(const httplib::Request& request, httplib::Response& response) const {
    if (options.token.empty()) return true;
    if (same_secret(options.token, cookie_token(request)) || same_secret(options.token, bearer_token(request)))
      return true;
    if (!same_secret(options.token, request.get_param_value("token"))) {
      refuse(response, 401, "A token is needed: open the address that hayfork serve printed.");
      return false;
    }
    response.status = 303;
    response.set_header("Set-Cookie", kCookie + options.token + "; HttpOnly; SameSite=Strict; Path=/");
    response.set_header("Location", "/");
    return false;
  }

  Handled check(const httplib::Request& request, httplib::Response& response) const {
    if (!is_trusted(request, response) || !has_token(request, response)) return Handled::Handled;
    if (request.method == "GET" || request.method == "HEAD") return Handled::Unhandled;
    response.set_header("Allow", "GET, HEAD");
    refuse(response, 405, "Pages can be read, nothing else.");
    return Handled::Handled;
  }
};

HttpServer::HttpServer(HttpOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
  HttpOptions& o = impl_->options;
  httplib::Server& server = impl_->server;
  // The library would share a port with whoever has it.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.set_payload_max_length(4096);
  server.set_read_timeout(5);
  server.set_write_timeout(30);
  server.set_keep_alive_timeout(2);
  server.new_task_queue = [] { return new httplib::ThreadPool(4); };
  server.set_default_headers({{"X-Content-Type-Options", "nosniff"},
                              {"X-Frame-Options", "DENY"},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cross-Origin-Resource-Policy", "same-origin"},
                              {"Cache-Control", "no-store"},
                              {"Content-Security-Policy", o.policy}});
  const int port = o.port == 0                                      ? server.bind_to_any_port(o.address.c_str())
                   : server.bind_to_port(o.address.c_str(), o.port) ? o.port
                                                                    : -1;
  if (port < 0) {
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("cannot listen on {} port {}", o.address, o.port),
                {.why = "another program has the port, or the address is not this machine's",
                 .next = "give another --port (0 takes any that is free)"});
  }
  o.port = port;
}

HttpServer::~HttpServer() = default;

std::string HttpServer::url() const {
  const HttpOptions& o = impl_->options;
  const bool anywhere = o.address == "0.0.0.0" || o.address == "::";
  const std::string host = anywhere                                   ? "localhost"
                           : o.address.find(':') != std::string::npos ? "[" + o.address + "]"
                                                                      : o.address;
  return fmt::format("http://{}:{}/{}", host, o.port, o.token.empty() ? "" : "?token=" + o.token);
}

void HttpServer::run(const std::function<HttpAnswer(const std::string& path)>& answer, const StopFlag& stop) {
  httplib::Server& server = impl_->server;
  server.set_pre_routing_handler(
      [this](const httplib::Request& request, httplib::Response& response) { return impl_->check(request, response); });
  server.Get(".*", [&](const httplib::Request& request, httplib::Response& response) {
    const std::lock_guard lock(impl_->answering);  // a page at a time: memory has one bound
    HttpAnswer page = answer(request.path);
    response.status = page.status;
    response.set_content(std::move(page.body), kHtml);
  });
  std::atomic<bool> ended = false;
  std::thread watch([&] {
    while (!stop.soft() && !ended) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    server.stop();
  });
  server.listen_after_bind();
  ended = true;
  watch.join();
}

}  // namespace hayfork::cli
