// A validated request, as the scheduler gets it. Plain values that point into no actor's state.
#pragma once

#include "runtime/sampling/pooling.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/scheduling/row_features.hpp"
#include "runtime/scheduling/step.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// A sequence resumed after another scheduler has run it in part.
struct resumed_sequence {
  std::uint32_t index = 0;
  std::vector<token_id> emitted;
  float mirostat_mu = 0; // after the last of them
};

/// `params->max_tokens` fits the context.
struct admission {
  std::uint64_t request = 0;
  token_list prompt;
  std::shared_ptr<const sampling_params> params;
  std::string client = {};    // who asks; clients share slots and rows
  int priority = 0;           // of all clients' requests: higher comes first
  int preference = 0;         // the same among the client's own of the same priority
  std::uint64_t arrival = 0;  // first come, first served of a client's with the same priority; ties by `request`
  bool again = false;         // readmitted: the queue is never too full for it
  token_list prediction = {}; // of the answer, for guesses; null: none
  std::shared_ptr<const guides::answer_guide> guide = {}; // that the answers follow; null: none
  std::vector<resumed_sequence> resumed; // unfinished sequences of the n; empty: all n, from the prompt
  pooling embed = pooling::none;         // of the prompt's hidden states, instead of samples
  std::int32_t second = 0;               // where the second of two texts begins in the prompt; 0: there is one
  row_features_ptr features = {};        // of all its rows
  std::int32_t expected_cached = 0;      // tokens of the prompt, as it was routed; for load reports alone
  token_list negative = {};              // the prompt of a twin, which has the same answer; null: none
  token_text_ptr text = {};              // of groups with stop strings
  int moves_to = -1;                     // the replica that its blocks are sent to meanwhile; -1: none
};

} // namespace troupe
