// What the machine of scheduler_machine.hpp computes, as functions of a sequence's history: entries, states, tokens,
// and the transcript of a request that runs alone.
#pragma once

#include "runtime/execution/featured_rows.hpp"
#include "runtime/execution/host_judge.hpp"
#include "runtime/scheduling/planning/scheduler.hpp"
#include "runtime/techniques/dola/dola_rows.hpp"
#include "runtime/techniques/dola/technique.hpp"
#include "tests/runtime/scheduling/submission.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace troupe::testing {

inline std::uint64_t mix(std::uint64_t h, std::uint64_t x) {
  h ^= x + 0x9e3779b97f4a7c15 + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccd;
}

inline token_id sample(std::uint64_t history, std::uint32_t index) {
  return static_cast<token_id>(mix(history, index) % 1000);
}

/// A constraint that forces tokens behind some others. Marked in the parameters, too, for those who see nothing else.
inline std::shared_ptr<const constraint> forcing_constraint() {
  static const int any = 0;
  return {std::shared_ptr<void>(), reinterpret_cast<const constraint*>(&any)}; // never looked into
}

inline bool is_forcing(token_id t) { return t >= 10 && t % 5 == 0; }
inline token_id forced_after(token_id t) { return 10 + t * 7 % 950; }

/// The token behind those generated so far.
inline token_id choose(std::uint64_t history, std::uint32_t index, const std::vector<token_id>& generated,
                       bool guided) {
  return guided && !generated.empty() && is_forcing(generated.back()) ? forced_after(generated.back())
                                                                      : sample(history, index);
}

inline std::uint64_t attended(std::uint64_t entry, int position) {
  return mix(entry, static_cast<std::uint64_t>(position));
}

/// A technique that changes rows by a number.
inline const technique numbered_technique{.name = "numbered"};

class numbered_use final : public technique_use {
public:
  explicit numbered_use(std::uint64_t number) : number_(number) {}

  const technique& of() const override { return numbered_technique; }
  std::uint64_t salt() const override { return number_; }
  bool changes_rows() const override { return true; }

private:
  std::uint64_t number_;
};

/// Steers a request: its K/V entries depend on `by`, a number. Marked in the parameters, too, for those who see nothing
/// else.
inline void steer_by(submission& a, std::uint64_t by) {
  auto& params = a.sampling;
  params.seed = by;
  row_features features{.used = technique_uses(std::make_shared<numbered_use>(by))};
  features.salt = salted(0, by);
  a.features = std::make_shared<const row_features>(std::move(features));
}

/// Lengths beyond which all positions of a sequence are rotated otherwise; of all machines of a test.
inline std::vector<std::int32_t> rope_borders;

/// Sequences have states; of all machines of a test.
inline bool recurrent_layers = false;

struct restored_borders {
  ~restored_borders() {
    rope_borders.clear();
    recurrent_layers = false;
  }
};

/// What a row gives, from what it attended to and from the state behind it.
inline std::uint64_t seen_with(std::uint64_t attention, std::uint64_t state) {
  return recurrent_layers ? mix(attention, state) : attention;
}

/// The state behind a row.
inline std::uint64_t advanced(std::uint64_t state, token_id token, std::uint64_t by) {
  return mix(state, static_cast<std::uint64_t>(token) + 3 * by + 1);
}

/// What all entries of a sequence of so many tokens depend on.
inline std::uint64_t rotation_of(int length) {
  return 1000 * static_cast<std::uint64_t>(std::ranges::count_if(rope_borders, [=](int b) { return b < length; }));
}

/// `length`: of the sequence that these tokens begin; 0: they are all of it.
inline std::uint64_t history_of(std::span<const token_id> tokens, std::uint64_t steered_by = 0,
                                std::size_t length = 0) {
  const auto by = steered_by + rotation_of(static_cast<int>(std::max(length, tokens.size())));
  std::uint64_t h = 0, seen = 0, state = 0;
  for (int p = 0; p < static_cast<int>(tokens.size()); ++p) {
    const auto token = tokens[static_cast<std::size_t>(p)];
    h = seen_with(mix(seen + by, static_cast<std::uint64_t>(token)), state = advanced(state, token, by));
    seen += attended(h, p);
  }
  return h;
}

inline std::vector<token_id> solo(const submission& a, std::uint32_t index) {
  std::uint64_t h = 0, seen = 0, rotation = 0, state = 0;
  auto all = a.prompt;
  std::size_t computed = 0;
  const auto compute = [&] {
    if (const auto now = rotation_of(static_cast<int>(all.size())); computed == 0 || now != rotation) {
      rotation = now;
      computed = seen = state = 0;
    }
    for (; computed < all.size(); ++computed) {
      const auto by = a.sampling.seed + rotation;
      h = seen_with(mix(seen + by, static_cast<std::uint64_t>(all[computed])),
                    state = advanced(state, all[computed], by));
      seen += attended(h, static_cast<int>(computed));
    }
  };
  std::vector<token_id> out;
  for (int i = 0; i < a.sampling.max_tokens; ++i) {
    compute();
    out.push_back(choose(h, index, out, a.sampling.ignore_eos));
    if (out.back() < 10)
      break; // ids below 10 act as EOS
    all.push_back(out.back());
  }
  return out;
}

} // namespace troupe::testing
