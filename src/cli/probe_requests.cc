// probe logprobs, nll, generate: requests as JSON lines.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/probe.h"
#include "cli/verbs.h"
#include "tasks/doc_fields.h"

namespace hayfork::cli {
namespace {

using engine::Request;
using nlohmann::json;
using nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

struct RequestProbe {
  ProbeFlags probe;
  std::string requests;
};

[[noreturn]] void malformed(const std::string& where, const std::string& why) {
  throw Error(ErrorCode::corrupt, ErrorSubject::data, "malformed request", {.where = where, .why = why});
}

const json& need(const JsonLine& line, const char* key) {
  if (!line.value.is_object() || !line.value.contains(key)) malformed(line.where, fmt::format("no \"{}\" in it", key));
  return line.value[key];
}

// A key that is none of these is a slip, not a wish to be ignored.
template <size_t N>
void only_keys(const JsonLine& line, const std::array<std::string_view, N>& keys) {
  if (!line.value.is_object()) malformed(line.where, "want an object");
  for (const auto& [key, value] : line.value.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      malformed(line.where, fmt::format("unknown key \"{}\"", key));
  }
}

// ---- logprobs ------------------------------------------------------------------------------------------------------

// Text after text (specs: context ids, and what the whole text adds to them).
Ids added_ids(const engine::Tokenizer& tokenizer, const std::string& context, const Ids& context_ids,
              const std::string& continuation, const std::string& add_bos, const std::string& where) {
  const Ids whole = encode_text(tokenizer, context + continuation, add_bos);
  if (whole.size() <= context_ids.size()) {
    malformed(where, "a continuation adds no token to its context: the tokenizer joins them");
  }
  return Ids(whole.begin() + static_cast<std::ptrdiff_t>(context_ids.size()), whole.end());
}

void score_text(const JsonLine& line, const engine::Engine& engine, const std::string& add_bos,
                engine::ScoreRequest& request) {
  const engine::Tokenizer& tokenizer = tokenizer_of(engine, line.where);
  std::string context = line.value["context"].get<std::string>();
  const size_t end = tasks::rstrip(context).size();  // lm-evaluation-harness's _encode_pair moves the blanks too
  const std::string moved = context.substr(end);
  context.resize(end);
  if (context.empty()) {
    const auto first = tokenizer.bos_id() ? tokenizer.bos_id() : tokenizer.eos_id();
    if (first) request.context = {*first};
  } else {
    request.context = encode_text(tokenizer, context, add_bos);
  }
  for (const json& continuation : line.value["continuations"]) {
    if (continuation.is_array()) {
      if (!moved.empty())
        malformed(line.where, "blanks end the context, and a continuation of ids cannot take them over");
      request.continuations.push_back(ids_of(continuation, engine.info(), line.where));
      continue;
    }
    if (!continuation.is_string()) malformed(line.where, "a continuation is text or a list of ids");
    const std::string text = moved + continuation.get<std::string>();
    if (context.empty()) {
      Ids ids = tokenizer.encode(text, {.add_special = false});
      if (ids.size() > 1 && !request.context.empty() && ids[0] == request.context[0]) ids.erase(ids.begin());
      request.continuations.push_back(std::move(ids));
    } else {
      request.continuations.push_back(added_ids(tokenizer, context, request.context, text, add_bos, line.where));
    }
  }
}

void score_ids(const JsonLine& line, const engine::Engine& engine, engine::ScoreRequest& request) {
  request.context = ids_of(line.value["context"], engine.info(), line.where);
  for (const json& continuation : line.value["continuations"]) {
    if (continuation.is_string()) {
      request.continuations.push_back(
          tokenizer_of(engine, line.where).encode(continuation.get<std::string>(), {.add_special = false}));
    } else {
      request.continuations.push_back(ids_of(continuation, engine.info(), line.where));
    }
  }
}

engine::ScoreRequest score_request(const JsonLine& line, const engine::Engine& engine, const std::string& add_bos) {
  only_keys(line, std::array<std::string_view, 2>{"context", "continuations"});
  const json& context = need(line, "context");
  if (!need(line, "continuations").is_array() || line.value["continuations"].empty()) {
    malformed(line.where, "want a list of continuations");
  }
  engine::ScoreRequest request;
  if (context.is_string()) {
    score_text(line, engine, add_bos, request);
  } else {
    score_ids(line, engine, request);
  }
  for (const Ids& ids : request.continuations) {
    if (ids.empty()) malformed(line.where, "a continuation is empty");
  }
  return request;
}

ordered_json score_line(const engine::ScoreRequest& request, const engine::ScoreAnswer& answer) {
  ordered_json line = {{"logprob", json::array()},
                       {"is_greedy", json::array()},
                       {"n_tokens", json::array()},
                       {"tokens", json::array()},
                       {"token_logprobs", json::array()}};
  for (size_t i = 0; i < answer.continuations.size(); ++i) {
    const engine::ContinuationScore& score = answer.continuations[i];
    line["logprob"].push_back(score.logprob);
    line["is_greedy"].push_back(score.is_greedy);
    line["n_tokens"].push_back(score.token_logprobs.size());
    line["tokens"].push_back(request.continuations[i]);
    line["token_logprobs"].push_back(score.token_logprobs);
  }
  return line;
}

// ---- nll and generate ----------------------------------------------------------------------------------------------

engine::NllRequest nll_request(const JsonLine& line, const engine::Engine& engine, const std::string& add_bos) {
  only_keys(line, std::array<std::string_view, 3>{"tokens", "text", "positions"});
  engine::NllRequest request;
  if (line.value.contains("text") == line.value.contains("tokens")) malformed(line.where, "want either tokens or text");
  if (line.value.contains("text")) {
    if (!line.value["text"].is_string()) malformed(line.where, "\"text\" is no text");
    request.tokens = encode_text(tokenizer_of(engine, line.where), line.value["text"].get<std::string>(), add_bos);
  } else {
    request.tokens = ids_of(line.value["tokens"], engine.info(), line.where);
  }
  if (request.tokens.size() < 2) malformed(line.where, "want two tokens at least: the first has nothing before it");
  if (!line.value.contains("positions") || line.value["positions"].is_null()) return request;
  request.positions.emplace();
  if (!line.value["positions"].is_array()) malformed(line.where, "\"positions\" is a list or null");
  for (const json& item : line.value["positions"]) {
    const int64_t position = item.is_number_integer() ? item.get<int64_t>() : 0;
    const int64_t before = request.positions->empty() ? 0 : request.positions->back();
    if (position <= before || position >= static_cast<int64_t>(request.tokens.size())) {
      malformed(line.where, fmt::format("positions rise from 1 to {}; found {}", request.tokens.size() - 1,
                                        item.dump().substr(0, 40)));
    }
    request.positions->push_back(static_cast<int32_t>(position));
  }
  return request;
}

engine::GenerateRequest generate_request(const JsonLine& line, const engine::Engine& engine,
                                         const std::string& add_bos) {
  only_keys(line, std::array<std::string_view, 4>{"prompt", "max_new_tokens", "stop", "ignore_eos"});
  const json& prompt = need(line, "prompt");
  engine::GenerateRequest request;
  request.prompt = prompt.is_string()
                       ? encode_text(tokenizer_of(engine, line.where), prompt.get<std::string>(), add_bos)
                       : ids_of(prompt, engine.info(), line.where);
  if (request.prompt.empty()) malformed(line.where, "the prompt is empty");
  const json& budget = need(line, "max_new_tokens");
  if (!budget.is_number_integer() || budget.get<int64_t>() < 1 || budget.get<int64_t>() > 100'000'000) {
    malformed(line.where, "\"max_new_tokens\" is a whole number of 1 or more");
  }
  request.max_new_tokens = budget.get<int32_t>();
  if (const json stop = line.value.value("stop", json()); stop.is_string()) {
    request.stops.push_back(stop.get<std::string>());
  } else if (stop.is_array()) {
    for (const json& item : stop) {
      if (!item.is_string()) malformed(line.where, "\"stop\" is a list of texts");
      request.stops.push_back(item.get<std::string>());
    }
  } else if (!stop.is_null()) {
    malformed(line.where, "\"stop\" is a list of texts");
  }
  const json ignore = line.value.value("ignore_eos", json(false));
  if (!ignore.is_boolean()) malformed(line.where, "\"ignore_eos\" is true or false");
  request.ignore_eos = ignore.get<bool>();
  return request;
}

ordered_json generate_line(const engine::GenerateAnswer& answer) {
  static constexpr const char* kFinish[] = {"eos", "stop", "length"};
  ordered_json line = {
      {"ids", answer.ids}, {"text", answer.text}, {"finish", kFinish[static_cast<int>(answer.finish)]}};
  if (answer.finish == engine::Finish::stop) line["stop"] = answer.stop;
  return line;
}

// ---- the three verbs -----------------------------------------------------------------------------------------------

using MakeRequest = std::function<Request(const JsonLine&, const engine::Engine&, const std::string& add_bos)>;
using MakeLine = std::function<ordered_json(const Request&, const engine::Answer&)>;

int run(const RequestProbe& options, Console& console, const MakeRequest& make, const MakeLine& line) {
  const std::vector<JsonLine> lines = read_json_lines(options.requests);
  const auto engine = open_probe(options.probe, console);
  std::vector<Request> requests;
  for (const JsonLine& input : lines) requests.push_back(make(input, *engine, options.probe.add_bos));
  const int status = answer_in_order(*engine, requests, console,
                                     [&](size_t i, const engine::Answer& answer) { return line(requests[i], answer); });
  write_stats(options.probe, *engine);
  return status;
}

std::shared_ptr<RequestProbe> declare(Flags& flags) {
  auto options = std::make_shared<RequestProbe>();
  flags.group("Input");
  FlagInfo& requests =
      flags.text("requests", options->requests, "F.jsonl", "Requests, one JSON object a line; - for standard input.");
  requests.required = true;
  requests.kind = "file";
  declare_probe_text(flags, options->probe);
  declare_probe(flags, options->probe);
  return options;
}

}  // namespace

Action declare_probe_logprobs(Flags& flags) {
  return [options = declare(flags)](Console& console) {
    return run(*options, console, score_request, [](const Request& request, const engine::Answer& answer) {
      return score_line(std::get<engine::ScoreRequest>(request), std::get<engine::ScoreAnswer>(answer.result));
    });
  };
}

Action declare_probe_nll(Flags& flags) {
  return [options = declare(flags)](Console& console) {
    return run(*options, console, nll_request, [](const Request&, const engine::Answer& answer) {
      return ordered_json{{"nll", std::get<engine::NllAnswer>(answer.result).nll}};
    });
  };
}

Action declare_probe_generate(Flags& flags) {
  return [options = declare(flags)](Console& console) {
    return run(*options, console, generate_request, [](const Request&, const engine::Answer& answer) {
      return generate_line(std::get<engine::GenerateAnswer>(answer.result));
    });
  };
}

}  // namespace hayfork::cli
