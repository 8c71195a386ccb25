// What a model's matrices are multiplied with while it reads a text.
#include "runtime/model/measuring/input_observer.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/model_source.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cmath>
#include <map>
#include <numeric>

using namespace troupe;
using namespace troupe::test;

namespace {

struct observed_sums {
  std::vector<double> squares; // of each input
  std::size_t rows = 0;
};

/// By matrix.
std::map<std::string, observed_sums> observe(const model_source& source, const std::vector<token_id>& tokens,
                                             int context, int rows, token_id first = -1,
                                             kernels::dtype compute = kernels::dtype::f32) {
  const auto backend = kernels::make_cpu_backend({.threads = 2});
  const auto weights = load_weights(*source.tensors, source.config, *backend, compute);
  std::map<std::string, observed_sums> result;
  std::size_t last = 0;
  observe_inputs(
    weights, *backend, tokens, context, rows, first,
    [&](const seen_inputs& seen) {
      REQUIRE(seen.values.size() == seen.rows * seen.inputs);
      for (const auto& matrix : seen.matrices) {
        auto& to = result[matrix];
        to.squares.resize(seen.inputs);
        to.rows += seen.rows;
        for (std::size_t i = 0; i < seen.values.size(); ++i)
          to.squares[i % seen.inputs] += double(seen.values[i]) * seen.values[i];
      }
    },
    [&](std::size_t done, std::size_t all) {
      CHECK(done > last);
      CHECK(all == observed_tokens(tokens.size(), context));
      last = done;
    });
  CHECK(last == observed_tokens(tokens.size(), context));
  return result;
}

std::vector<float> row_of(const checkpoint& tensors, const std::string& name, std::size_t row) {
  const auto& info = *tensors.find(name);
  const auto format = *weight_format_of(info.type);
  const auto data = tensors.read(name);
  std::vector<float> values(info.shape.back());
  to_floats(format, static_cast<const char*>(data.get()) + row * row_bytes(format, values.size()), values.size(),
            values.data());
  return values;
}

} // namespace

TEST_CASE("The first layer's attention reads the normed embeddings of the text, and each matrix is seen") {
  const auto source = open_model(golden("llama-gqa"));
  const std::vector<token_id> tokens{5, 9, 17, 33, 9, 70, 41};
  for (const int rows : {7, 3}) {
    CAPTURE(rows);
    const auto seen = observe(source, tokens, 7, rows);
    CHECK(seen.size() == 7 * as_size(source.config.layers));
    const auto norm = row_of(*source.tensors, "model.layers.0.input_layernorm.weight", 0);
    std::vector<double> squares(norm.size());
    for (const auto token : tokens) {
      const auto x = row_of(*source.tensors, "model.embed_tokens.weight", as_size(token));
      double mean = 0;
      for (const float v : x)
        mean += double(v) * v / double(x.size());
      for (std::size_t i = 0; i < x.size(); ++i)
        squares[i] += std::pow(x[i] * norm[i], 2) / (mean + source.config.norm_eps);
    }
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
      const auto& got = seen.at("model.layers.0.self_attn." + std::string(name) + ".weight");
      CHECK(got.rows == tokens.size());
      REQUIRE(got.squares.size() == squares.size());
      for (std::size_t i = 0; i < squares.size(); ++i)
        CHECK(got.squares[i] == doctest::Approx(squares[i]).epsilon(1e-4));
    }
    const auto& down = seen.at("model.layers.1.mlp.down_proj.weight");
    CHECK(down.squares.size() == as_size(source.config.ffn));
    CHECK(std::accumulate(down.squares.begin(), down.squares.end(), 0.0) > 0);
  }
}

TEST_CASE("A text is read in windows of their own, each with the given first token") {
  const auto source = open_model(golden("llama-gqa"));
  std::vector<token_id> tokens;
  for (int i = 0; i < 8; ++i)
    tokens.push_back(10 + i % 4);
  // Two windows of the same tokens: twice the sums of one.
  const auto twice = observe(source, tokens, 4, 4), once = observe(source, {tokens.begin(), tokens.begin() + 4}, 4, 4);
  for (const auto& [name, sums] : once) {
    CHECK(twice.at(name).rows == 8);
    for (std::size_t i = 0; i < sums.squares.size(); ++i)
      CHECK(twice.at(name).squares[i] == doctest::Approx(2 * sums.squares[i]).epsilon(1e-5));
  }
  auto other = tokens;
  other[0] = other[4] = 77;
  const std::string last = "model.layers.1.mlp.down_proj.weight";
  CHECK(observe(source, other, 4, 4, 10).at(last).squares == twice.at(last).squares);
  CHECK(observe(source, other, 4, 4).at(last).squares != twice.at(last).squares);
  CHECK(observed_tokens(9, 4) == 8); // a rest shorter than half a window is left out
  CHECK(observed_tokens(10, 4) == 10);
  CHECK(observed_tokens(1, 4) == 1); // unless it is all there is
  CHECK(failure_of([&] { observe(source, {}, 4, 4); }) == "a calibration text must have a token at least");
}

TEST_CASE("Computed in bf16, about the same is seen") {
  const auto source = open_model(golden("llama-mha-tied"));
  const std::vector<token_id> tokens{5, 9, 17, 33, 9, 70, 41};
  const auto exact = observe(source, tokens, 7, 7), rounded = observe(source, tokens, 7, 7, -1, kernels::dtype::bf16);
  REQUIRE(exact.size() == rounded.size());
  for (const auto& [name, sums] : exact) {
    const auto& other = rounded.at(name).squares;
    const double a = std::accumulate(sums.squares.begin(), sums.squares.end(), 0.0);
    CHECK(std::accumulate(other.begin(), other.end(), 0.0) == doctest::Approx(a).epsilon(0.05));
    CHECK(other != sums.squares);
  }
}

TEST_CASE("Of a mixture, an expert sees the rows that chose it") {
  const auto source = open_model((data() / "tiny_families/qwen2-moe").string());
  const auto& experts = source.config.experts;
  REQUIRE(experts.count > 1);
  std::vector<token_id> tokens;
  for (int i = 0; i < 24; ++i)
    tokens.push_back((i * 7 + 3) % source.config.vocab);
  const auto seen = observe(source, tokens, 24, 24);
  int mixtures = 0;
  for (int layer = 0; layer < source.config.layers; ++layer) {
    if (!source.config.is_sparse(layer))
      continue;
    ++mixtures;
    for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
      std::size_t rows = 0;
      for (int e = 0; e < experts.count; ++e) {
        const auto found = seen.find("model.layers." + std::to_string(layer) + ".mlp.experts." + std::to_string(e) +
                                     "." + part + ".weight");
        rows += found == seen.end() ? 0 : found->second.rows;
      }
      CHECK(rows == tokens.size() * as_size(experts.chosen));
    }
    const auto stem = "model.layers." + std::to_string(layer) + ".mlp.";
    CHECK(seen.at(stem + "gate.weight").rows == tokens.size());
    CHECK(seen.at(stem + "shared_expert.down_proj.weight").rows == tokens.size());
  }
  CHECK(mixtures > 0);
}

TEST_CASE("Of a block that layers share, a matrix sees the rows of each use") {
  const auto source = open_model(
    (data() / "tiny_families/zamba2").string()); // layers 0 and 3 use a block, 1 and 5 another
  const std::vector<token_id> tokens{5, 9, 17, 33, 9};
  const auto seen = observe(source, tokens, 5, 5);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."})
    for (const std::string matrix : {"self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"})
      CHECK(seen.at(layer + matrix + ".weight").rows == 2 * tokens.size());
  CHECK(!seen.contains("model.layers.3.self_attn.q_proj.weight"));
  CHECK(seen.at("model.layers.3.shared_block.linear.weight").rows == tokens.size());
  CHECK(seen.at("model.layers.3.recurrent.out_proj.weight").rows == tokens.size());
}
