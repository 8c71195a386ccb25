// Layers of multi-token prediction against a reference of transformers' layers by vLLM's rules (make_mtp_models.py).
#include "runtime/techniques/speculation/mtp_runner.hpp"

#include "runtime/model/tensor_names.hpp"
#include "runtime/techniques/speculation/draft_model.hpp"
#include "tests/runtime/model/decoder_checks.hpp"
#include "tests/runtime/techniques/speculation/draft_model_cases.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const std::vector<std::string> mtp_models{"deepseek-v3", "glm4-moe", "nemotron-h", "qwen3-5", "qwen3-next"};

/// The model's states of all tokens, [tokens, hidden].
std::vector<float> mtp_states_of(const model_source& source, const std::vector<token_id>& ids) {
  auto backend = kernels::make_cpu_backend({.threads = 1});
  const auto weights = load_weights(*source.tensors, source.config, *backend, dtype::f32);
  decoder graph(weights, *backend, 64, 128);
  const auto cache = backend->make_kv_cache(kv_shape_of(source.config, dtype::f32, 8));
  const std::vector<kernels::sequence_rows> rows{
    {0, static_cast<std::int32_t>(ids.size()), 0, 0, static_cast<std::int32_t>(ids.size())}};
  const auto table = first_blocks(ids.size());
  std::vector<std::int32_t> all(ids.size());
  std::iota(all.begin(), all.end(), 0);
  const auto width = as_size(source.config.hidden);
  std::vector<float> hidden(ids.size() * width);
  graph.forward(ids, {rows, table}, {}, *cache, {}, all, {hidden.data(), dtype::f32, ids.size(), width, width});
  return hidden;
}

/// A runner of the layers, and steps of one sequence.
struct lone_layers {
  explicit lone_layers(const model_source& source) {
    auto backend = kernels::make_cpu_backend({.threads = 1});
    auto spec = std::make_shared<mtp_spec>();
    spec->layers = load_mtp_weights(*source.tensors, *source.mtp, *backend, dtype::f32);
    spec->embedding = spec->head = load_weights(*source.tensors, source.config, *backend, dtype::f32);
    CHECK(spec->layers->bytes ==
          estimate_memory(*source.tensors, source.mtp->config, dtype::f32, *backend, {}).weights +
            mtp_weight_bytes(*source.tensors, *source.mtp, dtype::f32, *backend));
    runner_spec sizes{.weights = spec->layers->layers, .precision = dtype::f32, .sizes = {64, 4, 128}, .blocks = 8};
    runner = std::make_unique<mtp_runner>(spec, sizes, std::move(backend));
  }

  /// Logits and states of each row, [rows, vocab] and [rows, hidden].
  step_output run(const std::vector<token_id>& tokens, const std::vector<float>& states, int first) {
    step_plan plan;
    plan.tokens = tokens;
    const auto rows = static_cast<std::int32_t>(tokens.size());
    plan.sequences = {{0, rows, first, 0, first + rows}};
    plan.block_tables = first_blocks(as_size(first + rows));
    for (std::int32_t i = 0; i < rows; ++i)
      plan.logit_rows.push_back(i);
    plan.hidden_rows = plan.logit_rows;
    const stage_rows before{.rows = {std::shared_ptr<const void>(), states.data()}};
    return runner->run(plan, &before);
  }

  std::unique_ptr<mtp_runner> runner;
};

} // namespace

TEST_CASE("Multi-token prediction: the reference's logits of rows, and of one that reads what the last gave") {
  for (const auto& model : mtp_models) {
    CAPTURE(model);
    const auto source = open("tiny_mtp/" + model);
    REQUIRE(source.mtp.has_value());
    CHECK(check_tensors(*source.tensors, source.config, tensors_used(*source.mtp)).empty());
    const auto document = json::document::load(data() / "tiny_mtp" / model / "expected.json");
    const auto ids = list<token_id>(document.root()["ids"]);
    const auto positions = list<int>(document.root()["positions"]);
    json::array expected;
    REQUIRE(!document.root()["logits"].get(expected));
    const auto width = as_size(source.config.hidden), vocab = as_size(source.config.vocab);
    const auto states = mtp_states_of(source, ids);
    lone_layers layers(source);
    const std::vector<token_id> behind(ids.begin() + 1, ids.end());
    // In one step, and in two.
    for (const std::size_t cut : {std::size_t{0}, std::size_t{17}}) {
      CAPTURE(cut);
      if (cut > 0)
        layers.run({behind.begin(), behind.begin() + 17}, states, 0);
      const auto out = layers.run({behind.begin() + static_cast<std::ptrdiff_t>(cut), behind.end()},
                                  {states.begin() + static_cast<std::ptrdiff_t>(cut * width), states.end()},
                                  static_cast<int>(cut));
      for (std::size_t i = 0; i < positions.size(); ++i)
        if (as_size(positions[i]) >= cut) {
          const auto* row = out.logits.get() + (as_size(positions[i]) - cut) * vocab;
          CAPTURE(positions[i]);
          CHECK(largest_difference(row_logits(row, row + vocab), list<float>(expected.at(i))) < 2e-4);
        }
      const auto* last = out.hidden.get() + (behind.size() - cut - 1) * width;
      const std::vector<float> own(last, last + width);
      std::int64_t guess = 0;
      REQUIRE(!document.root()["guess"].get(guess));
      const auto chained = layers.run({static_cast<token_id>(guess)}, own, static_cast<int>(behind.size()));
      CHECK(largest_difference(row_logits(chained.logits.get(), chained.logits.get() + vocab),
                               list<float>(document.root()["chained"])) < 2e-4);
    }
  }
}

TEST_CASE(
  "Multi-token prediction: a transcript's rows in parts, from the middle, and after wrong guesses, guess the same") {
  const auto source = open("tiny_mtp/deepseek-v3");
  const auto document = json::document::load(data() / "tiny_mtp/deepseek-v3/expected.json");
  const auto ids = list<token_id>(document.root()["ids"]);
  const auto states = mtp_states_of(source, ids);
  engine_options options;
  options.model = (data() / "tiny_mtp/deepseek-v3").string();
  options.compute.device = "cpu";
  options.compute.threads = 1;
  options.kv_cache_bytes = 1 << 20;
  options.techniques["speculate"] = {"mtp"};
  const auto replica = replica_of(load_model(options, {}));
  REQUIRE(replica.model->guesses.make_model);
  const auto width = as_size(source.config.hidden);
  const auto rows_of = [&](std::size_t first, std::size_t end) {
    const auto copy = std::make_shared<const std::vector<float>>(
      states.begin() + static_cast<std::ptrdiff_t>(first * width),
      states.begin() + static_cast<std::ptrdiff_t>(end * width));
    return state_rows{static_cast<std::int32_t>(first), static_cast<std::int32_t>(end - first), {copy, copy->data()}};
  };
  const auto params = std::make_shared<const sampling_params>(draft_cases::greedy());
  const auto demand = [&](std::uint64_t number, std::size_t known, std::size_t end, std::vector<state_rows> rows) {
    return guess_demand{
      {number, 0},
      params,
      10,
      known,
      {ids.begin() + static_cast<std::ptrdiff_t>(known), ids.begin() + static_cast<std::ptrdiff_t>(end)},
      3,
      std::move(rows)};
  };
  const auto made = [&] { return replica.model->guesses.make_model(replica); };
  const auto first_model = made(), second_model = made();
  auto& whole = *first_model;
  auto& parts = static_cast<draft_model&>(*second_model);
  const auto expected = whole.serve({.number = 1, .demands = {demand(1, 0, 30, {rows_of(0, 29)})}});
  REQUIRE(expected.answers[0].guesses.size() == 3);
  // Some rows, then guesses that turn out wrong, then the rest; states that come twice.
  auto reply = parts.serve({.number = 1, .demands = {demand(1, 0, 12, {rows_of(0, 11)})}});
  CHECK(reply.answers[0].guesses.size() == 3);
  reply = parts.serve({.number = 2, .demands = {demand(1, 12, 20, {rows_of(11, 15), rows_of(13, 19)})}});
  CHECK(reply.answers[0].guesses.size() == 3);
  reply = parts.serve({.number = 3, .demands = {demand(1, 20, 30, {rows_of(19, 29)})}});
  CHECK(reply.answers[0].guesses == expected.answers[0].guesses);
  // Without states nothing is guessed, and behind a gap from there on.
  reply = parts.serve({.number = 4, .demands = {demand(1, 30, 32, {})}});
  CHECK(reply.answers[0].guesses.empty());
  CHECK_FALSE(reply.answers[0].behind);
  reply = parts.serve(
    {.number = 5, .demands = {demand(1, 32, 36, {rows_of(33, 35)}), demand(2, 0, 36, {rows_of(33, 35)})}});
  CHECK(reply.answers[0].guesses.size() == 3);
  CHECK(reply.answers[0].guesses == reply.answers[1].guesses);
  parts.serve({.number = 6, .ended = {{1, 0}, {2, 0}}});
  CHECK(parts.free_blocks() == replica.plan.blocks);
}

TEST_CASE("Multi-token prediction: asked for where there is none, it is refused") {
  auto options = draft_cases::on_cpu();
  options.techniques["speculate"] = {"mtp"};
  const auto refusal = [](const engine_options& o) { return failure_of([&] { load_model(o, {}); }); };
  CHECK(refusal(options) == "`speculate` is mtp, but llama-gqa has no layers of multi-token prediction that are known");
  options.model = (data() / "tiny_mtp/glm4-moe").string();
  options.techniques["draft"] = {options.model};
  CHECK(refusal(options) ==
        "`speculate` is mtp, so that the model's own layers guess, but `draft` names a model that is "
        "to guess");
}
