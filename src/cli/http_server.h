// A small HTTP server for pages: GET and HEAD of paths, nothing else, on the loopback interface unless told otherwise.
// Requests from elsewhere are refused before anything is looked up: a Host or Origin that is not this server's own (a
// page of another site, a name that was made to point here), or a missing token where one is wanted. The one place that
// knows the HTTP library.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/stop.h"

namespace hayfork::cli {

struct HttpOptions {
  std::string address = "127.0.0.1";
  int port = 7777;          // 0: any that is free
  std::string token = {};   // not empty: asked of every request, and Host may be any
  std::string policy = {};  // Content-Security-Policy
};

struct HttpAnswer {
  int status = 200;
  std::string body;  // HTML
};

class HttpServer {
 public:
  // Listens. Throws: usage, when the address or port cannot be had.
  explicit HttpServer(HttpOptions options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const;  // with the token
  // Answers until the flag is raised. `answer` is given the path without query, one call at a time.
  void run(const std::function<HttpAnswer(const std::string& path)>& answer, const StopFlag& stop);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hayfork::cli
