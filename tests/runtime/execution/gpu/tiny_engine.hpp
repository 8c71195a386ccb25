// Tiny checkpoints in the engine on the emulated GPU, and requests for them, alone and together.
#pragma once

#include "tests/runtime/execution/gpu/gpu_engine.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

namespace troupe::testing {

/// Tiny models, as the emulation is slow.
inline engine_options tiny_on_gpu(const std::string& model) {
  auto o = on_gpu();
  o.model = test_data() + "/" + model;
  o.compute.dtype = "f32";
  o.kv_cache_bytes = 1 << 20;
  o.max_context = 64;
  o.max_sequences = 6;
  o.step_tokens = 24;
  return o;
}

/// A copy of a tiny checkpoint with a tokenizer, which the engine needs: its own, or another tiny one's. `numbers`: of
/// config.json that are changed.
class tiny_model {
public:
  explicit tiny_model(const std::string& name, const std::map<std::string, int>& numbers = {}) {
    namespace fs = std::filesystem;
    const fs::path data = test_data(), own = data / name / "tokenizer.json";
    fs::copy_file(data / name / "model.safetensors", folder_.path() / "model.safetensors");
    fs::copy_file(fs::exists(own) ? own : data / "tiny_mtp/qwen3-5/tokenizer.json", folder_.path() / "tokenizer.json");
    std::ostringstream config;
    config << std::ifstream(data / name / "config.json").rdbuf();
    auto text = config.str();
    for (const auto& [key, value] : numbers)
      text = std::regex_replace(text, std::regex("\"" + key + "\": *[0-9]+"),
                                "\"" + key + "\": " + std::to_string(value));
    std::ofstream(folder_.path() / "config.json") << text;
  }

  engine_options options() const {
    auto o = tiny_on_gpu("");
    o.model = folder_.path().string();
    return o;
  }

private:
  test::temp_folder folder_;
};

inline generation ignoring_eos(std::vector<token_id> prompt, int tokens) {
  auto g = ask(std::move(prompt), tokens);
  g.sampling.ignore_eos = true;
  return g;
}

/// Tokens of a vocabulary of 48, of which the first 20 are always the same.
inline std::vector<token_id> tiny_prompt(std::size_t length, token_id seed) {
  std::vector<token_id> prompt(length);
  for (std::size_t i = 0; i < length; ++i)
    prompt[i] = static_cast<token_id>((3 + 7 * i + i * i * (i < 20 ? 1u : static_cast<unsigned>(seed))) % 44 + 3);
  return prompt;
}

/// What requests give one after another, without anything that makes them faster.
inline std::vector<heard> alone(engine_options o, const std::vector<generation>& work) {
  o.prefix_cache = false;
  o.compute.graphs = false;
  o.techniques["speculate"] = {"off"};
  gpu_engine reference(o); // runs work when it is queued
  if (const auto& why = reference.status().why)
    FAIL(why->message);
  std::vector<heard> expected;
  for (const auto& g : work) {
    expected.push_back(reference.run(g));
    if (expected.back().failed)
      FAIL(expected.back().failed->message);
  }
  return expected;
}

/// All at once.
inline void run_together(gpu_engine& engine, const std::vector<generation>& work, const std::vector<heard>& expected) {
  std::vector<listener> listeners(work.size());
  for (std::size_t i = 0; i < work.size(); ++i)
    engine.submit(work[i], listeners[i]);
  for (std::size_t i = 0; i < work.size(); ++i) {
    CAPTURE(i);
    REQUIRE(listeners[i].wait());
    CHECK(same(listeners[i].result(), expected[i]));
  }
}

} // namespace troupe::testing
