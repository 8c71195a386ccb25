// The lines of a record: what a server was asked, when, and what it answered. A file of them is JSON, an object on each
// line: a head, then a line as each request begins and one as it ends. Plain data and pure functions.
#pragma once

#include "runtime/support/types.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe {

using record_time = std::chrono::microseconds; // since the record began

/// What a record was made with.
struct recorded_head {
  static constexpr int newest = 1;

  int format = newest;
  std::string version;      // of the program
  std::string build;        // its GNU build id; empty: not known
  std::string begun;        // "2026-11-30T08:15:00Z"
  std::int64_t process = 0; // which, of several that write to one folder as one takes another's place
  bool has_prompts = true;
};

/// A model that was served.
struct recorded_model {
  std::string name;
  std::string files; // a checksum over all their bytes; empty: not known
};

/// A request that came.
struct recorded_begin {
  std::uint64_t number = 0; // in the record, from 1
  record_time at{};
  std::string id;       // as its client has it
  std::string endpoint; // "/v1/chat/completions"; "/v1/ws": a frame
  std::string client;   // a number for each
  std::string body;     // empty: prompts are not recorded
};

/// One sequence of an answer, or one hypothesis.
struct recorded_answer {
  std::vector<token_id> ids = {};   // empty: prompts are not recorded
  std::vector<float> logprobs = {}; // empty: not known
  std::size_t tokens = 0;
  std::string finish = {}; // "stop", "length", "cancelled", "timeout"; empty: it has no end
};

/// What became of one prompt of a request.
struct recorded_prompt {
  std::uint64_t seed = 0;
  int max_tokens = 0;                 // as the policy let it have
  std::size_t tokens = 0, cached = 0; // of the prompt
  std::vector<recorded_answer> answers = {};
  std::optional<std::uint64_t> values =
    {}; // a checksum over the bits of an embedding, or of a prompt's log-probabilities
};

/// A request that has ended.
struct recorded_end {
  std::uint64_t number = 0;
  record_time at{}, first{}; // its end, and its first token; 0: there was none
  unsigned status = 0;
  std::string model = {};
  std::vector<recorded_prompt> prompts = {};
};

using recorded_line = std::variant<recorded_head, recorded_model, recorded_begin, recorded_end>;

/// With a line break.
std::string line_of(const recorded_line& what);

/// Throws failure(bad_file) naming `source`.
recorded_line parse_record_line(std::string_view text, const std::string& source);

} // namespace troupe
