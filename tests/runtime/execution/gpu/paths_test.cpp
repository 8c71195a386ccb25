// The engine on the emulated GPU with a head_dim that has tensor-core kernels: split attention over several partitions
// with a shared prefix and, outside deterministic mode, flash attention, cuBLASLt's products and the choice between
// these; all with recorded steps whose memory grows.
#include "tests/runtime/execution/gpu/gpu_engine.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cmath>
#include <cstring>
#include <random>

using namespace troupe;
using namespace troupe::testing;
using kernels::cuda::emulated::check_memory;
using kernels::cuda::emulated::counted;
using kernels::cuda::emulated::deferred_work;

namespace {

constexpr int vocab = 768, hidden = 64, layers = 2, heads = 8, kv_heads = 2, head_dim = 64, intermediate = 96;
constexpr double logit_deviation = 3;
constexpr std::size_t prefix_tokens = 272; // more than a partition, whole blocks

/// A random checkpoint with logits of known magnitude, and the tokenizer of another.
class noise_checkpoint {
public:
  noise_checkpoint() {
    for (const auto* file : {"tokenizer.json", "tokenizer_config.json"})
      std::filesystem::copy_file(golden("llama-gqa") + "/" + file, folder_.path() / file);
    test::write(
      folder_.path() / "config.json",
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "bos_token_id": 0,)"
      R"( "eos_token_id": 4, "max_position_embeddings": 2048, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,)"
      R"( "tie_word_embeddings": false, "vocab_size": )" +
        std::to_string(vocab) + R"(, "hidden_size": )" + std::to_string(hidden) + R"(, "head_dim": )" +
        std::to_string(head_dim) + R"(, "intermediate_size": )" + std::to_string(intermediate) +
        R"(, "num_attention_heads": )" + std::to_string(heads) + R"(, "num_key_value_heads": )" +
        std::to_string(kv_heads) + R"(, "num_hidden_layers": )" + std::to_string(layers) + "}");
    add("model.embed_tokens.weight", vocab, hidden, 1);
    for (int i = 0; i < layers; ++i) {
      const auto layer = "model.layers." + std::to_string(i) + ".";
      const auto matrix = [&](const std::string& name, int outputs, int inputs) {
        add(layer + name + ".weight", outputs, inputs, 1 / std::sqrt(double(inputs)));
      };
      ones(layer + "input_layernorm.weight");
      ones(layer + "post_attention_layernorm.weight");
      matrix("self_attn.q_proj", heads * head_dim, hidden);
      matrix("self_attn.k_proj", kv_heads * head_dim, hidden);
      matrix("self_attn.v_proj", kv_heads * head_dim, hidden);
      matrix("self_attn.o_proj", hidden, heads * head_dim);
      matrix("mlp.gate_proj", intermediate, hidden);
      matrix("mlp.up_proj", intermediate, hidden);
      matrix("mlp.down_proj", hidden, intermediate);
    }
    ones("model.norm.weight");
    add("lm_head.weight", vocab, hidden, logit_deviation / std::sqrt(double(hidden)));
    auto file = test::safetensors("{" + header_ + "}", values_.size() * sizeof(float));
    std::memcpy(file.data() + file.size() - values_.size() * sizeof(float), values_.data(),
                values_.size() * sizeof(float));
    test::write(folder_.path() / "model.safetensors", file);
  }

  std::string path() const { return folder_.path().string(); }

private:
  void describe(const std::string& name, const std::string& shape, std::size_t count) {
    header_ += (header_.empty() ? "\"" : ", \"") + name + R"(": {"dtype": "F32", "shape": [)" + shape +
      R"(], "data_offsets": [)" + std::to_string(values_.size() * sizeof(float)) + ", " +
      std::to_string((values_.size() + count) * sizeof(float)) + "]}";
  }
  void add(const std::string& name, int rows, int cols, double deviation) {
    const auto count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
    describe(name, std::to_string(rows) + ", " + std::to_string(cols), count);
    std::normal_distribution<float> normal(0, static_cast<float>(deviation));
    for (std::size_t i = 0; i < count; ++i)
      values_.push_back(normal(random_));
  }
  void ones(const std::string& name) {
    describe(name, std::to_string(hidden), hidden);
    values_.insert(values_.end(), hidden, 1.f);
  }

  test::temp_folder folder_;
  std::string header_;
  std::vector<float> values_;
  std::mt19937 random_{11};
};

/// Requests in turns: a short prompt, the long prefix, many that share it and end one by one, a single one again,
/// longer tails.
std::vector<std::vector<generation>> turns() {
  std::mt19937 random(5);
  const auto tokens = [&](std::size_t count) {
    std::vector<token_id> result(count);
    for (auto& t : result)
      t = static_cast<token_id>(5 + random() % (vocab - 5));
    return result;
  };
  const auto greedy = [](std::vector<token_id> prompt, int max_tokens) {
    auto g = ask(std::move(prompt), max_tokens);
    g.sampling.ignore_eos = true;
    g.sampling.logprobs = 2;
    return g;
  };
  const auto prefix = tokens(prefix_tokens);
  const auto with_tail = [&](std::size_t count) {
    auto prompt = prefix;
    const auto tail = tokens(count);
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    return prompt;
  };
  std::vector<std::vector<generation>> all{{greedy(tokens(7), 6)}, {greedy(with_tail(1), 6)}, {}};
  for (int i = 0; i < 16; ++i) // attention states grow in a step that is recorded afterwards
    all.back().push_back(greedy(with_tail(1), i == 0 ? 16 : 6 + i / 3));
  all.push_back({greedy(with_tail(1), 5)});
  all.push_back({greedy(with_tail(9), 3), greedy(with_tail(40), 3), greedy(tokens(20), 3)});
  return all;
}

std::vector<heard> run(const engine_options& options) {
  gpu_engine engine(options);
  REQUIRE(engine.status().now == load_status::stage::ready);
  std::vector<heard> result;
  for (const auto& turn : turns()) {
    std::vector<listener> listeners(turn.size());
    for (std::size_t i = 0; i < turn.size(); ++i)
      engine.submit(turn[i], listeners[i]);
    for (auto& l : listeners) {
      REQUIRE(l.wait());
      result.push_back(l.result());
      if (result.back().failed)
        FAIL(result.back().failed->message);
    }
  }
  return result;
}

engine_options options_of(const noise_checkpoint& model) {
  auto o = on_gpu();
  o.model = model.path();
  o.compute.dtype = "bf16";
  o.max_context = 512;
  o.max_sequences = 16;
  return o;
}

/// Compares greedy tokens and their log-probabilities up to the first different token, whose two likeliest choices must
/// be close. Errors of bf16 logits are those of the decoder's tests: eight roundings a layer and two at the head of
/// 2^-9 / sqrt(3) each, 3.5 deviations; log-probabilities err by twice that. Returns the number of tokens compared.
std::size_t check_like(const std::vector<heard>& got, const std::vector<heard>& want) {
  const double bound = 2 * 3.5 * logit_deviation * 0x1p-9 / std::sqrt(3.0) * std::sqrt(8.0 * layers + 2);
  std::size_t compared = 0;
  REQUIRE(got.size() == want.size());
  for (std::size_t r = 0; r < got.size(); ++r) {
    CAPTURE(r);
    const auto &mine = got[r].tokens.at(0), &theirs = want[r].tokens.at(0);
    REQUIRE(mine.size() == theirs.size());
    for (std::size_t i = 0; i < mine.size(); ++i, ++compared) {
      CAPTURE(i);
      if (mine[i].id != theirs[i].id) {
        CHECK(theirs[i].top.at(0).logprob - theirs[i].top.at(1).logprob < bound);
        break;
      }
      CHECK(std::abs(double(mine[i].logprob) - theirs[i].logprob) < bound); // the worst seen is 0.4 of it
    }
  }
  return compared;
}

} // namespace

TEST_CASE("tokens of a GPU equal those of the CPU with head_dim 64, long shared prompts and growing memory") {
  const noise_checkpoint model;
  auto on_cpu = options_of(model);
  on_cpu.compute.device = "cpu";
  on_cpu.compute.dtype = "f32";
  const auto want = run(on_cpu);
  std::size_t tokens = 0;
  for (const auto& h : want)
    tokens += h.ids.at(0).size();

  std::vector<heard> deterministic;
  for (const bool fixed : {true, false})
    for (unsigned seed = 1; seed <= 2; ++seed) {
      CAPTURE(fixed);
      CAPTURE(seed);
      auto options = options_of(model);
      options.compute.deterministic = fixed;
      options.compute.graphs = seed == 1;
      options.step_tokens = seed == 1 ? 512 : 96;
      const auto before = counted();
      std::vector<heard> got;
      {
        deferred_work later(seed);
        got = run(options);
      }
      check_memory();
      CHECK((counted().replays > before.replays + 8) == options.compute.graphs);
      CHECK(check_like(got, want) > tokens * 3 / 4);
      if (!fixed)
        continue;
      if (deterministic.empty())
        deterministic = got;
      else
        for (std::size_t i = 0; i < got.size(); ++i)
          CHECK(same(got[i], deterministic[i]));
    }
}
