// Attention over compressed keys against its definition in double, and with the same bits however steps divide a text.
#include "tests/kernels/compressed_checks.hpp"
#include "tests/kernels/sharded/sharded_support.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

TEST_CASE("Compressed keys: entries, the choice among them, and attention are what their definitions say") {
  for (const auto& kind : ce_kinds) {
    CAPTURE(kind.rate);
    generator random{unsigned(kind.rate) + 1};
    const compressed_case of(random, kind);
    const auto on = make_backend(tested_isas().back(), 2);
    ce_check(of, ce_run(*on, of, kv_type::f32, ce_parts, 3));
  }
}

TEST_CASE("Compressed keys: bits do not depend on how steps divide a text, on threads, on ranks or on blocks") {
  for (const isa target : tested_isas())
    for (const auto type : ce_types)
      for (const auto& kind : {ce_kinds[0], ce_kinds[3]}) {
        CAPTURE(std::string(to_string(target)));
        CAPTURE(std::string(to_string(type)));
        CAPTURE(kind.rate);
        generator random{unsigned(kind.rate)};
        const compressed_case of(random, kind);
        const auto whole = ce_run(*make_backend(target, 1), of, type, ce_whole, 4);
        for (const auto& [threads, ranks] : {std::pair(3, 0), std::pair(2, 2), std::pair(1, ce_heads + 1)}) {
          CAPTURE(ranks);
          const auto on = ranks == 0 ? make_backend(target, threads) : make_ranks(target, std::size_t(ranks), threads);
          const auto parts = ce_run(*on, of, type, ranks == 2 ? ce_whole : ce_parts, 9);
          CHECK(std::memcmp(whole.restored.data(), parts.restored.data(), whole.restored.size() * sizeof(float)) == 0);
          CHECK(whole.chosen.positions == parts.chosen.positions);
        }
        const auto norm = std::sqrt(std::inner_product(whole.over.begin(), whole.over.end(), whole.over.begin(), 0.0));
        CHECK(norm > 1);
      }
}
