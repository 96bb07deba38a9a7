#include "tests/support/orthros_reference.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

namespace hayfork::test {
namespace {

using Vec = std::vector<double>;
using Rows = std::vector<Vec>;

struct Oracle {
  const TinyCheckpoint& checkpoint;
  const OrthrosShape& shape;
  const std::vector<int32_t>& ids;

  const std::vector<float>& tensor(const std::string& name) const { return checkpoint.tensors.at(name).values; }

  // x Wᵀ
  Rows linear(const Rows& x, const std::string& name) const {
    const auto& w = tensor(name);
    Rows y;
    for (const Vec& row : x) {
      Vec out(w.size() / row.size(), 0.0);
      for (size_t n = 0; n < out.size(); ++n) {
        for (size_t k = 0; k < row.size(); ++k) out[n] += row[k] * static_cast<double>(w[n * row.size() + k]);
      }
      y.push_back(std::move(out));
    }
    return y;
  }

  // Root mean square over each group of w.size() columns.
  void norm(Rows& x, const std::string& name) const {
    const auto& w = tensor(name);
    for (Vec& row : x) {
      for (size_t begin = 0; begin < row.size(); begin += w.size()) {
        double sum = 0;
        for (size_t i = 0; i < w.size(); ++i) sum += row[begin + i] * row[begin + i];
        const double scale = 1 / std::sqrt(sum / static_cast<double>(w.size()) + 1e-5);
        for (size_t i = 0; i < w.size(); ++i) row[begin + i] *= scale * static_cast<double>(w[i]);
      }
    }
  }

  // Row r stands at position r mod T.
  void rotate(Rows& x) const {
    const auto d = static_cast<size_t>(shape.head_dim), half = d / 2;
    for (size_t r = 0; r < x.size(); ++r) {
      const auto position = static_cast<double>(r % ids.size());
      for (size_t begin = 0; begin < x[r].size(); begin += d) {
        for (size_t i = 0; i < half; ++i) {
          const double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(d));
          double &a = x[r][begin + i], &b = x[r][begin + half + i];
          const double first = a * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + a * std::sin(angle);
          a = first;
        }
      }
    }
  }

  // α ⊙ q + β of the base rows, α′ ⊙ q + β′ of the output rows behind them.
  void affine(Rows& q, const std::string& attention) const {
    for (size_t r = 0; r < q.size(); ++r) {
      const std::string name = attention + "q_affine." + (r < ids.size() ? "base" : "output");
      const auto &scale = tensor(name + ".scale"), &offset = tensor(name + ".offset");
      for (size_t i = 0; i < q[r].size(); ++i) {
        q[r][i] = q[r][i] * static_cast<double>(scale[i]) + static_cast<double>(offset[i]);
      }
    }
  }

  Rows attention(int layer, const Rows& u) const {
    const std::string name = fmt::format("model.layers.{}.self_attn.", layer);
    const bool orthros = shape.has_orthros(layer), qk_norm = shape.backbone == "qwen3";
    const size_t T = ids.size();
    const Rows base(u.begin(), u.begin() + static_cast<long>(T));
    Rows q = linear(u, name + "q_proj.weight"), k = linear(base, name + "k_proj.weight");
    const Rows v = linear(base, name + "v_proj.weight");
    if (orthros && shape.stage == "pre_norm") affine(q, name);
    if (qk_norm) norm(q, name + "q_norm.weight");
    if (qk_norm) norm(k, name + "k_norm.weight");
    if (orthros && shape.stage == "post_norm") affine(q, name);
    rotate(q);
    rotate(k);
    Rows o;
    for (size_t r = 0; r < q.size(); ++r) {
      const size_t t = r % T, window = orthros && r < T ? static_cast<size_t>(shape.window) : T;
      o.push_back(attend(q[r], k, v, t + 1 > window ? t + 1 - window : 0, t));
    }
    return linear(o, name + "o_proj.weight");
  }

  // Keys first … last.
  Vec attend(const Vec& q, const Rows& k, const Rows& v, size_t first, size_t last) const {
    const auto d = static_cast<size_t>(shape.head_dim);
    const size_t group = static_cast<size_t>(shape.n_heads / shape.n_kv_heads);
    Vec o(q.size(), 0.0);
    for (size_t h = 0; h < static_cast<size_t>(shape.n_heads); ++h) {
      const size_t kv = h / group * d;
      Vec weights;
      double sum = 0;
      for (size_t j = first; j <= last; ++j) {
        double score = 0;
        for (size_t i = 0; i < d; ++i) score += q[h * d + i] * k[j][kv + i];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
        sum += weights.back();
      }
      for (size_t j = first; j <= last; ++j) {
        for (size_t i = 0; i < d; ++i) o[h * d + i] += weights[j - first] / sum * v[j][kv + i];
      }
    }
    return o;
  }

  Rows feed_forward(int layer, const Rows& u) const {
    const std::string name = fmt::format("model.layers.{}.mlp.", layer);
    Rows gate = linear(u, name + "gate_proj.weight");
    const Rows up = linear(u, name + "up_proj.weight");
    for (size_t r = 0; r < gate.size(); ++r) {
      for (size_t i = 0; i < gate[r].size(); ++i) gate[r][i] *= up[r][i] / (1 + std::exp(-gate[r][i]));
    }
    return linear(gate, name + "down_proj.weight");
  }
};

void add(Rows& x, const Rows& y) {
  for (size_t r = 0; r < x.size(); ++r) {
    for (size_t i = 0; i < x[r].size(); ++i) x[r][i] += y[r][i];
  }
}

}  // namespace

std::vector<float> mask_oracle(const TinyCheckpoint& checkpoint, const OrthrosShape& shape,
                               const std::vector<int32_t>& ids) {
  const Oracle oracle{checkpoint, shape, ids};
  const auto& embedding = oracle.tensor("model.embed_tokens.weight");
  const size_t hidden = checkpoint.config["hidden_size"].get<size_t>();
  Rows x;
  for (int copy = 0; copy < 2; ++copy) {  // Z = Concat[X, X]
    for (const int32_t id : ids) {
      const auto row = embedding.begin() + static_cast<long>(static_cast<size_t>(id) * hidden);
      x.emplace_back(row, row + static_cast<long>(hidden));
    }
  }
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    const std::string name = fmt::format("model.layers.{}.", layer);
    Rows u = x;
    oracle.norm(u, name + "input_layernorm.weight");
    add(x, oracle.attention(layer, u));
    u = x;
    oracle.norm(u, name + "post_attention_layernorm.weight");
    add(x, oracle.feed_forward(layer, u));
  }
  Rows output(x.begin() + static_cast<long>(ids.size()), x.end());
  oracle.norm(output, "model.norm.weight");
  std::vector<float> logits;
  for (const Vec& row : oracle.linear(output, "lm_head.weight")) logits.insert(logits.end(), row.begin(), row.end());
  return logits;
}

}  // namespace hayfork::test
