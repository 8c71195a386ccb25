// Attention over compressed keys on a GPU: what the CPU's is checked for (compressed_checks.hpp).
#include "tests/kernels/compressed_checks.hpp"
#include "tests/kernels/cuda/support.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::cuda::testing;

namespace {

ce_computed ce_on_a_device(const compressed_case& of, kv_type type, std::span<const int> chunks, unsigned seed) {
  const auto device = make_device();
  return ce_run(*device, of, type, chunks, seed, [&](const position_choice& choice) {
    std::vector<std::int32_t> all(choice.positions.size());
    cuda::copy_to_host(device->queue(), all.data(), choice.on_device.get(), all.size() * sizeof(std::int32_t));
    device->queue().synchronise();
    return all;
  });
}

} // namespace

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: entries, the choice among them, and attention are what their definitions say") {
  for (const auto& kind : ce_kinds) {
    CAPTURE(kind.rate);
    generator random{unsigned(kind.rate) + 1};
    const compressed_case of(random, kind);
    ce_check(of, ce_on_a_device(of, kv_type::f32, ce_parts, 3));
  }
}

TEST_CASE("CUDA: bits of attention over entries do not depend on how steps divide a text, or on blocks") {
  for (const auto type : ce_types) {
    const auto& kind = ce_kinds[type == kv_type::bf16 ? 3 : 0];
    CAPTURE(std::string(to_string(type)));
    generator random{unsigned(kind.rate)};
    const compressed_case of(random, kind);
    const auto whole = ce_on_a_device(of, type, ce_whole, 4), parts = ce_on_a_device(of, type, ce_parts, 9);
    CHECK(std::memcmp(whole.restored.data(), parts.restored.data(), whole.restored.size() * sizeof(float)) == 0);
    CHECK(whole.chosen.positions == parts.chosen.positions);
    // Rounding of K, of entries and what they are made of, and of what is chosen: near what f32 gives.
    const auto exact = make_backend(available_isas().front(), 2); // multiplies in f32
    const auto near = ce_run(*exact, of, type, ce_whole, 4);
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < near.restored.size(); ++i) {
      difference += std::pow(near.restored[i] - whole.restored[i], 2);
      norm += std::pow(near.restored[i], 2);
    }
    CHECK(std::sqrt(difference / norm) < 0.05);
  }
}

TEST_SUITE_END();
