#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/engine/weight_loading.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder.hpp"
#include "runtime/model/memory_estimate.hpp"
#include "runtime/sampling/group_strategy.hpp"
#include "runtime/support/json.hpp"
#include "tests/runtime/sampling/groups/groups_test_data.hpp"

#include <doctest/doctest.h>

#include <numeric>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int context = 256;

/// A golden checkpoint in f32; each call computes the whole sequence.
class golden_model {
public:
  explicit golden_model(const std::string& name)
    : source_(open_model((data() / "golden" / name).string())),
      backend_(kernels::make_cpu_backend({1, kernels::available_isas().back()})),
      weights_(load_weights(*source_.tensors, source_.config, *backend_, kernels::dtype::f32)),
      decoder_(weights_, *backend_, context, context),
      cache_(
        backend_->make_kv_cache(kv_shape_of(source_.config, kernels::dtype::f32, context / kernels::block_tokens))),
      logits_(backend_->allocate(vocab() * sizeof(float))),
      blocks_(context / kernels::block_tokens) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  std::size_t vocab() const { return static_cast<std::size_t>(source_.config.vocab); }
  const std::vector<token_id>& eos_ids() const { return source_.generation.stops; }

  std::vector<float> logits_after(std::span<const token_id> tokens) {
    const auto rows = static_cast<std::int32_t>(tokens.size());
    const std::vector<kernels::sequence_rows> who{{0, rows, 0, 0}};
    const std::vector<std::int32_t> wanted{rows - 1};
    const kernels::tensor out{logits_.get(), kernels::dtype::f32, 1, vocab(), vocab()};
    decoder_.forward(tokens, {who, blocks_}, wanted, *cache_, out);
    std::vector<float> result(vocab());
    backend_->download(result.data(), out);
    return result;
  }

private:
  model_source source_;
  std::unique_ptr<kernels::backend> backend_;
  std::shared_ptr<const model_weights> weights_;
  decoder decoder_;
  std::unique_ptr<kernels::kv_cache> cache_;
  kernels::buffer logits_;
  std::vector<std::int32_t> blocks_;
};

} // namespace

TEST_CASE("Golden checkpoints: beam search finds transformers' sequences and scores") {
  constexpr double closest = 1e-3;
  for (const auto& name : golden_models) {
    CAPTURE(name);
    golden_model model(name);
    const auto expected = json::document::load(data() / "golden" / name / "expected.json");
    int searches = 0;
    for (auto one : json::array(expected.root()["cases"])) {
      const auto beams = json::find(one, "beam");
      if (!beams)
        continue;
      const auto prompt = list<token_id>(one["ids"]);
      for (auto beam : json::array(*beams)) {
        sampling_params params;
        params.num_beams = params.n = static_cast<int>(std::int64_t(beam["num_beams"]));
        params.max_tokens = static_cast<int>(std::int64_t(beam["max_new_tokens"]));
        params.length_penalty = static_cast<float>(double(beam["length_penalty"]));
        const auto strategy = make_group_strategy(std::make_shared<const sampling_params>(params), model.eos_ids(),
                                                  prompt);
        const auto got = drive(
          *strategy, [&](std::span<const token_id> tokens) { return model.logits_after(tokens); }, params, prompt);
        check_sequences(beam["sequences"], got, closest);
        ++searches;
      }
    }
    CHECK(searches > 0);
  }
}
