// Runs a file of JSON Schemas with documents through the guide engine: which documents are accepted, and how long
// compiling and masks take. Also feeds single documents to a guide, token by token.
#pragma once

#include "runtime/guide/guide.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::guides {

struct guide_bench_options {
  std::string schemas; // JSON Lines: name, schema, tests: [{valid, data}]
  bool any_order = false, compact = false;
};

/// Microseconds.
struct time_summary {
  double average = 0, p50 = 0, p90 = 0, p99 = 0, most = 0;
};

struct guide_bench_result {
  std::size_t schemas = 0, passed = 0, refused = 0;
  std::size_t valid_accepted = 0, valid_rejected = 0, invalid_rejected = 0, invalid_accepted = 0;
  time_summary compile, mask;
};

/// Told of each schema that does not pass: its name and why.
using guide_failure = std::function<void(std::string_view name, std::string_view what)>;

/// Throws failure if the file is malformed; a schema that cannot be compiled only counts as refused.
guide_bench_result bench_guides(const guide_bench_options& options, const tokenizer& tokens,
                                const std::shared_ptr<const guide_vocabulary>& vocabulary,
                                const guide_failure& on_failure);

/// Feeds a text as these tokens. Nothing if the guide accepts all of it and its end, else the byte of the text at which
/// it does not; the text's length if it may not end there. Times of masks, one before each token, go to `mask_us`.
std::optional<std::size_t> rejected_at(guide_state state, const guide_vocabulary& vocabulary,
                                       const std::vector<token_id>& ids, std::vector<double>* mask_us);

} // namespace troupe::guides
