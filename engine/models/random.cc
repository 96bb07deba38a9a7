#include "engine/models/random.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/models/families.h"

namespace hayfork::engine {
namespace {

constexpr std::string_view kPrefix = "random:";

// Sizes as published where a shape has a public model; positions are not limited by it.
struct ShapeRow {
  std::string_view name, config;
};
constexpr std::array kShapes = {
    ShapeRow{"qwen3-0.6b", R"({"model_type":"qwen3","vocab_size":151936,"hidden_size":1024,"intermediate_size":3072,
      "num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,"rms_norm_eps":1e-6,
      "rope_theta":1000000,"tie_word_embeddings":true})"},
    ShapeRow{"qwen3-8b", R"({"model_type":"qwen3","vocab_size":151936,"hidden_size":4096,"intermediate_size":12288,
      "num_hidden_layers":36,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"rms_norm_eps":1e-6,
      "rope_theta":1000000,"tie_word_embeddings":false})"},
    ShapeRow{"llama-1.3b", R"({"model_type":"llama","vocab_size":32000,"hidden_size":2048,"intermediate_size":5504,
      "num_hidden_layers":24,"num_attention_heads":16,"num_key_value_heads":16,"head_dim":128,"rms_norm_eps":1e-5,
      "rope_theta":10000,"tie_word_embeddings":false})"},
    ShapeRow{"llama3-8b", R"({"model_type":"llama","vocab_size":128256,"hidden_size":4096,"intermediate_size":14336,
      "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"rms_norm_eps":1e-5,
      "rope_theta":500000,"tie_word_embeddings":false})"},
    ShapeRow{"qwen3.5-4b", R"({"model_type":"qwen3_5_text","vocab_size":248320,"hidden_size":2560,
      "intermediate_size":9216,"num_hidden_layers":32,"num_attention_heads":16,"num_key_value_heads":4,"head_dim":256,
      "rms_norm_eps":1e-6,"rope_theta":10000000,"tie_word_embeddings":true})"},
    ShapeRow{"qwen3.5-9b", R"({"model_type":"qwen3_5_text","vocab_size":248320,"hidden_size":4096,
      "intermediate_size":12288,"num_hidden_layers":32,"num_attention_heads":16,"num_key_value_heads":4,"head_dim":256,
      "rms_norm_eps":1e-6,"rope_theta":10000000,"tie_word_embeddings":false})"},
    ShapeRow{"gpt-oss-20b", R"({"model_type":"gpt_oss","vocab_size":201088,"hidden_size":2880,"intermediate_size":2880,
      "num_hidden_layers":24,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"rms_norm_eps":1e-5,
      "num_local_experts":32,"num_experts_per_tok":4,"sliding_window":128,"tie_word_embeddings":false,
      "quantization_config":{"quant_method":"mxfp4"},"rope_parameters":{"rope_type":"yarn","rope_theta":150000,
      "factor":32,"original_max_position_embeddings":4096,"truncate":false}})"},
    ShapeRow{"gemma4-31b", R"({"model_type":"gemma4_text","vocab_size":262144,"hidden_size":5376,
      "intermediate_size":21504,"num_hidden_layers":60,"num_attention_heads":32,"num_key_value_heads":16,"head_dim":256,
      "global_head_dim":512,"num_global_key_value_heads":4,"attention_k_eq_v":true,"hidden_size_per_layer_input":0,
      "sliding_window":1024,"final_logit_softcapping":30,"rms_norm_eps":1e-6,"rope_parameters":{
      "full_attention":{"rope_type":"proportional","partial_rotary_factor":0.25,"rope_theta":1000000},
      "sliding_attention":{"rope_type":"default","rope_theta":10000}}})"},
};

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  std::vector<std::string_view> names;
  for (const ShapeRow& row : kShapes) names.push_back(row.name);
  throw Error(
      ErrorCode::usage, ErrorSubject::model, fmt::format("\"{}\" is not a random model", name),
      {.where = {},
       .why = why,
       .next = fmt::format("random:SHAPE[+swaW[@0-3,7]][+orthrosW][:SEED], SHAPE one of {}", fmt::join(names, ", "))});
}

template <typename T>
T number(const std::string& name, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    refuse(name, fmt::format("\"{}\" is not a number", text));
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// "0-3,7" → 0 1 2 3 7
std::vector<int32_t> parse_layers(const std::string& name, std::string_view text) {
  std::vector<int32_t> layers;
  for (const std::string_view part : split(text, ',')) {
    const size_t dash = part.find('-');
    const auto first = number<int32_t>(name, part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number<int32_t>(name, part.substr(dash + 1));
    if (first < 0 || last < first || last >= kMaxLayers)
      refuse(name, fmt::format("\"{}\" is not a range of layers", part));
    for (int32_t i = first; i <= last; ++i) layers.push_back(i);
  }
  return layers;
}

int32_t parse_window(const std::string& name, std::string_view text) {
  const auto window = number<int32_t>(name, text);
  if (window < 1) refuse(name, "a window has at least one token");
  return window;
}

// Gemma 4's pattern: every sixth layer is global, the last one too.
nlohmann::json with_layer_types(nlohmann::json config) {
  if (config["model_type"] != "gemma4_text") return config;
  const int n = config["num_hidden_layers"];
  for (int i = 0; i < n; ++i) {
    const bool global = (i + 1) % 6 == 0 || i + 1 == n;
    config["layer_types"].push_back(global ? "full_attention" : "sliding_attention");
  }
  return config;
}

}  // namespace

bool is_random_name(std::string_view name) {
  return name.starts_with(kPrefix);
}

RandomModel parse_random(const std::string& name) {
  RandomModel model;
  std::string_view rest = std::string_view(name).substr(kPrefix.size());
  if (const size_t colon = rest.rfind(':'); colon != std::string_view::npos) {
    model.seed = number<uint64_t>(name, rest.substr(colon + 1));
    rest = rest.substr(0, colon);
  }
  const auto parts = split(rest, '+');
  const auto row =
      std::find_if(kShapes.begin(), kShapes.end(), [&](const ShapeRow& shape) { return shape.name == parts[0]; });
  if (row == kShapes.end()) refuse(name, fmt::format("there is no shape \"{}\"", parts[0]));
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].starts_with("swa")) {
      const size_t at = parts[i].find('@');
      model.swa = parse_window(name, parts[i].substr(3, at == std::string_view::npos ? at : at - 3));
      if (at != std::string_view::npos) model.swa_layers = parse_layers(name, parts[i].substr(at + 1));
    } else if (parts[i].starts_with("orthros")) {
      model.orthros = parse_window(name, parts[i].substr(7));
    } else {
      refuse(name, fmt::format("there is no modifier \"{}\"", parts[i]));
    }
  }
  nlohmann::json config = with_layer_types(nlohmann::json::parse(row->config));
  config["max_position_embeddings"] = kUnlimitedPositions;
  model.config = config.dump();
  return model;
}

void apply_modifiers(ModelSpec& spec, const RandomModel& model) {
  if (model.swa > 0) {
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      auto* attention = std::get_if<SoftmaxSpec>(&spec.layers[i].mixer);
      const auto& chosen = model.swa_layers;
      const bool named =
          chosen.empty() || std::find(chosen.begin(), chosen.end(), static_cast<int32_t>(i)) != chosen.end();
      if (attention != nullptr && attention->window == 0 && named) attention->window = model.swa;
    }
  }
  if (model.orthros > 0) {
    const std::string block =
        fmt::format(R"({{"version":1,"backbone_model_type":"{}","window_size":{},"scale_offset":true}})", spec.family,
                    model.orthros);
    apply_orthros(spec, Config::parse(block, "orthros"));
  }
}

}  // namespace hayfork::engine
