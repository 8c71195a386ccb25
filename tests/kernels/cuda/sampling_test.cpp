// Tokens sampled on the device are bit-equal to those of the sampler in runtime/sampling.
#include "kernels/cuda/device/sampling.hpp"
#include "runtime/execution/gpu/sampling_row.hpp"
#include "runtime/sampling/sampler.hpp"
#include "runtime/support/error.hpp"
#include "tests/kernels/cuda/support.hpp"

#include <array>
#include <map>

using namespace troupe;
using namespace troupe::kernels::cuda::testing;
namespace cuda = kernels::cuda;
using kernels::buffer;

namespace {

template <class T>
const T* to_device(const cuda::stream& on, const std::vector<T>& values, std::vector<buffer>& owner) {
  if (values.empty())
    return nullptr;
  owner.push_back(cuda::allocate(values.size() * sizeof(T)));
  cuda::copy_to_device(on, owner.back().get(), values.data(), values.size() * sizeof(T));
  on.synchronise(); // `values` may be a temporary
  return static_cast<const T*>(owner.back().get());
}

struct sample {
  sampling_params params;
  std::vector<token_id> prompt, emitted, eos;
  std::uint32_t index = 0;
  std::int32_t logit_row = 0;
};

cuda::sampling_row row_of(const sample& d, const cuda::stream& on, std::vector<buffer>& owner) {
  const auto& p = d.params;
  auto row = sampling_row_of(p);
  row.logit_row = d.logit_row;
  row.position = d.prompt.size() + d.emitted.size();
  row.index = d.index;
  std::vector<cuda::logit_bias> biases;
  for (const auto& [id, bias] : p.logit_bias)
    biases.push_back({id, bias});
  std::vector<cuda::token_count> counts;
  if (p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0) {
    token_counts all;
    all.add_prompt(d.prompt);
    for (const auto id : d.emitted)
      all.add_generated(id);
    for (const auto& entry : all.distinct())
      counts.push_back({entry.id, entry.generated});
  }
  std::vector<std::int32_t> masked;
  if (int(d.emitted.size()) < p.min_tokens) {
    masked = d.eos;
    masked.insert(masked.end(), p.stop_token_ids.begin(), p.stop_token_ids.end());
  }
  row.bias_count = int(biases.size()), row.counted = int(counts.size()), row.masked_count = int(masked.size());
  row.biases = to_device(on, biases, owner);
  row.counts = to_device(on, counts, owner);
  row.masked = to_device(on, masked, owner);
  return row;
}

/// Samples all rows and compares each with the sampler's.
void check_samples(const std::vector<sample>& samples, const std::vector<float>& logits, std::size_t vocab) {
  const cuda::stream on;
  std::vector<buffer> owner;
  std::vector<cuda::sampling_row> rows;
  for (const auto& d : samples)
    rows.push_back(row_of(d, on, owner));
  cuda::sampling_params params;
  params.logits = to_device(on, logits, owner);
  params.stride = params.vocab = static_cast<std::int32_t>(vocab);
  params.rows = to_device(on, rows, owner);
  const auto out = cuda::allocate(samples.size() * sizeof(cuda::sampled_row));
  const auto edited = cuda::allocate(samples.size() * vocab * sizeof(float));
  params.out = static_cast<cuda::sampled_row*>(out.get());
  params.edited = static_cast<float*>(edited.get());
  cuda::sample(on, params, samples.size());
  std::vector<cuda::sampled_row> got(samples.size());
  cuda::copy_to_host(on, got.data(), out.get(), got.size() * sizeof(cuda::sampled_row));
  on.synchronise();

  sampling_scratch scratch;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    CAPTURE(i);
    const auto& d = samples[i];
    sequence_sampler sampler(std::make_shared<sampling_params>(d.params), d.eos, d.prompt, d.emitted, d.index);
    const std::span<const float> row(logits.data() + std::size_t(d.logit_row) * vocab, vocab);
    sampled_token want;
    try {
      want = sampler.sample(row, scratch);
    } catch (const failure&) {
      CHECK(got[i].token == -1);
      continue;
    }
    CHECK(got[i].token == want.id);
    if (d.params.logprobs < 0)
      continue;
    const double log_total = std::log(double(got[i].total) / 0x1p40);
    const auto logprob = [&](float logit) {
      return static_cast<float>(double(std::min(logit - got[i].largest, 0.f)) - log_total);
    };
    CHECK(logprob(got[i].logit) == want.logprob);
    REQUIRE(std::size_t(got[i].top_count) == want.top.size());
    for (std::size_t k = 0; k < want.top.size(); ++k) {
      CHECK(got[i].top_ids[k] == want.top[k].id);
      CHECK(logprob(got[i].top_logits[k]) == want.top[k].logprob);
    }
  }
}

/// Distinct ids.
std::vector<token_id> some_ids(generator& random, int vocab, int count) {
  std::vector<token_id> ids(static_cast<std::size_t>(vocab));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random.engine);
  ids.resize(static_cast<std::size_t>(std::min(vocab, count)));
  return ids;
}

} // namespace

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: samples and log-probabilities equal the sampler's for every parameter and odd vocabularies") {
  generator random(4);
  for (const int vocab : {1, 7, 111, 989, 4096 + 13}) {
    CAPTURE(vocab);
    const std::size_t rows = 3;
    auto logits = random.normal(rows * std::size_t(vocab), 3);
    for (int i = 0; i < vocab; ++i) // row 1 has many equal logits, row 2 is nearly flat
      logits[std::size_t(vocab + i)] = float(random.below(6));
    for (int i = 0; i < vocab; ++i)
      logits[std::size_t(2 * vocab + i)] *= 0.01f;
    std::vector<sample> samples;
    for (int i = 0; i < (is_sanitized ? 8 : is_emulated() ? 24 : 200); ++i) {
      sample d;
      d.logit_row = random.below(int(rows));
      d.index = static_cast<std::uint32_t>(random.below(3));
      d.params.seed = random.engine() * 0x100000001ull;
      const float temperatures[] = {0, 0.3f, 1, 1, 1.7f}, top_ps[] = {1, 1, 0.9f, 0.5f, 0.1f, 0},
                  min_ps[] = {0, 0, 0.05f, 0.5f};
      d.params.temperature = temperatures[random.below(5)];
      d.params.top_k = random.below(3) == 0 ? 1 + random.below(50) : 0;
      d.params.top_p = top_ps[random.below(6)];
      d.params.min_p = min_ps[random.below(4)];
      d.params.logprobs = random.below(22) - 1;
      for (int t = 0; t < 5 + random.below(30); ++t)
        (t < 7 ? d.prompt : d.emitted).push_back(random.below(vocab));
      if (random.below(2) == 0) {
        d.params.repetition_penalty = 1.3f;
        d.params.presence_penalty = 0.7f;
        d.params.frequency_penalty = -0.4f;
      }
      std::map<token_id, float> biases;
      if (random.below(3) == 0)
        for (const auto id : some_ids(random, vocab, 9))
          biases[id] = float(random.below(200) - 100) / 20;
      d.params.logit_bias = std::vector<logit_bias_map::entry>(biases.begin(), biases.end());
      d.eos = some_ids(random, vocab, 2);
      d.params.max_tokens = 100;
      d.params.min_tokens = random.below(60);
      samples.push_back(std::move(d));
    }
    check_samples(samples, logits, std::size_t(vocab));
  }
}

TEST_CASE("CUDA: NaN and infinite logits are treated as the sampler treats them") {
  const std::size_t vocab = 300;
  generator random(6);
  auto logits = random.normal(5 * vocab);
  for (std::size_t i = 0; i < vocab; i += 3)
    logits[i] = std::nanf("");
  logits[vocab + 70] = logits[vocab + 71] = INFINITY;
  for (std::size_t i = 0; i < vocab; ++i) {
    logits[2 * vocab + i] = -INFINITY;
    logits[3 * vocab + i] = std::nanf("");
    if (i > 4)
      logits[4 * vocab + i] = -INFINITY; // fewer finite logits than top_k and logprobs
  }
  std::vector<sample> samples;
  for (int row = 0; row < 5; ++row)
    for (int i = 0; i < 6; ++i) {
      sample d;
      d.logit_row = row;
      d.prompt = {1, 2, 3};
      d.params.seed = static_cast<std::uint64_t>(i);
      d.params.temperature = i == 0 ? 0.f : 1.f;
      d.params.top_k = i == 2 ? 10 : 0;
      d.params.top_p = i == 3 ? 0.8f : 1.f;
      d.params.min_p = i == 4 ? 0.2f : 0.f;
      d.params.logprobs = row == 0 || row == 4 ? (row == 4 ? 3 : 8) : -1;
      samples.push_back(d);
    }
  check_samples(samples, logits, vocab);
}

TEST_CASE("CUDA: samples over many seeds and positions use the same Philox numbers as runtime/sampling") {
  const std::size_t vocab = 64;
  const std::vector<float> logits(vocab, 0.25f); // a sample reveals six bits
  std::vector<sample> samples;
  for (std::uint32_t i = 0; i < (is_emulated() ? 100u : 2000u); ++i) {
    sample d;
    d.params.seed = i * 0x9e3779b97f4a7c15ull;
    d.prompt.assign(i % 97, 1);
    d.index = i % 5;
    samples.push_back(d);
  }
  check_samples(samples, logits, vocab);
}

TEST_SUITE_END();
