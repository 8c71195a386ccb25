// Runners of stages, each on a thread of its own with threads of its own, as executors have them; also with ranks, and
// beside others over the same weights. Their results are the bits of one runner of the whole model. Under
// ThreadSanitizer this stands for the actors, which cannot run there.
#include "runtime/engine/loading/loader.hpp"
#include "runtime/techniques/dola/technique.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

using namespace troupe;

namespace {

/// What goes from one stage to the next.
struct passed_step {
  std::shared_ptr<const step_plan> plan;
  std::shared_ptr<const stage_rows> rows;
};

class stage_queue {
public:
  void push(passed_step step) {
    const std::lock_guard lock(mutex_);
    steps_.push_back(std::move(step));
    changed_.notify_one();
  }

  passed_step pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !steps_.empty(); });
    auto step = std::move(steps_.front());
    steps_.pop_front();
    return step;
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<passed_step> steps_;
};

engine_options staged(int stages, int ranks, int replicas) {
  engine_options o;
  o.model = golden("llama-gqa");
  o.compute.device = "cpu";
  o.compute.dtype = "bf16";
  o.compute.quantize = "int8";
  o.compute.threads = stages * ranks * replicas;
  o.compute.tensor_parallel = ranks;
  o.stages = stages;
  o.replicas = replicas;
  o.step_tokens = 32;
  o.max_context = 128;
  o.max_sequences = 4;
  o.kv_cache_bytes = static_cast<std::size_t>(replicas) << 20;
  return o;
}

constexpr std::int32_t saved_block = 3;

/// Two prompts in chunks that alternate, then rows of both; a block that was written is copied, swapped out and in, and
/// saved to an image.
std::vector<std::shared_ptr<const step_plan>> staged_plans(const block_image_ptr& image) {
  std::vector<std::shared_ptr<const step_plan>> plans;
  for (int chunk = 0; chunk < 6; ++chunk)
    for (int sequence = 0; sequence < 2; ++sequence) {
      step_plan plan;
      plan.step = plans.size() + 1;
      const int rows = chunk < 3 ? 13 : 1, at = chunk < 3 ? 13 * chunk : 36 + chunk;
      for (int i = 0; i < rows; ++i)
        plan.tokens.push_back(static_cast<token_id>((7 + 31 * sequence + 37 * (at + i)) % 600 + 5));
      plan.sequences = {{0, rows, at, 0}};
      plan.sequences[0].length = at + rows;
      plan.block_tables = {4 * sequence, 4 * sequence + 1, 4 * sequence + 2};
      plan.logit_rows = {rows - 1};
      plan.samples = {{{static_cast<std::uint64_t>(sequence), 0}, sequence, 0, nullptr}};
      if (sequence == 0)
        plan.featured = {{std::make_shared<const row_features>(
                            row_features{.used = technique_uses(contrasted_with(dola_layers({0, 1})))}),
                          0, 0, 1}};
      if (chunk == 4 && sequence == 0)
        plan.moves = {{block_move::kind::copy, 0, saved_block},
                      {block_move::kind::swap_out, saved_block, 1},
                      {block_move::kind::swap_in, 1, 7},
                      {block_move::kind::save, 7, 0, image},
                      {block_move::kind::copy, 7, 0}};
      plans.push_back(std::make_shared<const step_plan>(std::move(plan)));
    }
  return plans;
}

struct staged_results {
  std::vector<std::vector<float>> logits;
  std::vector<std::byte> image;

  bool operator==(const staged_results& o) const {
    return image == o.image && std::ranges::equal(logits, o.logits, [](const auto& a, const auto& b) {
             return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
           });
  }
};

/// Runs all plans through the stages of a replica, which work at the same time.
staged_results run_stages(const model_replica& replica, std::size_t image_bytes) {
  image_pool images(image_bytes, 1);
  const auto image = images.take();
  const auto plans = staged_plans(image);
  const auto stages = replica.plan.stages.size();
  std::vector<stage_queue> queues(stages);
  for (const auto& plan : plans)
    queues.front().push({plan, nullptr});
  staged_results results;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < stages; ++i)
    threads.emplace_back([&, i] {
      const auto runner = replica.make_runner(i);
      for (std::size_t n = 0; n < plans.size(); ++n) {
        const auto step = queues[i].pop();
        const auto output = runner->run(*step.plan, step.rows.get());
        if (i + 1 < stages) {
          queues[i + 1].push({step.plan, output.passed});
          continue;
        }
        results.logits.emplace_back(output.logits.get(), output.logits.get() + output.vocab);
        if (output.contrast)
          for (const auto& row : output.contrast->at(0))
            results.logits.emplace_back(row.begin(), row.end());
      }
    });
  for (auto& thread : threads)
    thread.join();
  results.image.assign(image->bytes.begin(), image->bytes.end());
  return results;
}

staged_results run_staged(int stages, int ranks = 1, int replicas = 1) {
  auto options = staged(stages, ranks, replicas);
  options.swap_bytes = 1 << 20;
  const auto model = load_model(options, {});
  std::size_t image = 0;
  for (const auto& stage : model->stages)
    image += kv_shape_of(stage.weights->config, stage.precision, 1).block_bytes();
  std::vector<staged_results> all(static_cast<std::size_t>(replicas));
  std::vector<std::thread> threads; // replicas share weights
  for (std::size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&, i] { all[i] = run_stages(replica_of(model, i), image); });
  for (auto& thread : threads)
    thread.join();
  for (const auto& each : all)
    CHECK(each == all.front());
  return all.front();
}

} // namespace

TEST_CASE("runners of stages, ranks and replicas at work together give the bits of one runner") {
  const auto expected = run_staged(1);
  CHECK(expected.logits.size() == 12 + 6);
  for (const auto& [stages, ranks, replicas] :
       {std::tuple{2, 1, 1}, {3, 1, 1}, {1, 2, 1}, {2, 2, 1}, {1, 1, 2}, {2, 1, 2}}) {
    CAPTURE(stages);
    CAPTURE(ranks);
    CAPTURE(replicas);
    CHECK(run_staged(stages, ranks, replicas) == expected);
  }
}
