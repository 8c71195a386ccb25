// Beams as a technique: what a request asks of a beam search (beam_search.hpp is how it is done), and what follows from
// it for the other parameters.
#pragma once

#include "runtime/techniques/technique.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace troupe {

class technique_uses; // runtime/techniques/technique_uses.hpp

extern const technique beams_technique;

/// When a beam search with enough finished hypotheses ends: once no running beam would score better at its present
/// length (off), at once (on), or once none can at any length (never), as in transformers.
enum class early_stopping : std::uint8_t { off, on, never };

struct beam_options {
  int width = 0;  // beams; the n best hypotheses are returned
  int groups = 1; // diverse beam search: the beams are searched in so many groups, one after the other
  float diversity_penalty = 0;
  float length_penalty = 1; // a hypothesis' score is its log-probability / its length ^ length_penalty
  early_stopping stopping = early_stopping::off;
  bool sampled = false; // extensions are drawn, as in transformers with do_sample
};

/// A search with these options. Null: its width is 0.
technique_use_ptr beams(const beam_options& how);

/// The options of a request's use of this technique; null: it has none.
const beam_options* beams_of(const sampling_params& params);

/// What a request says of beams, before it is read beside its other parameters.
struct asked_beams {
  beam_options how = {};
  std::optional<bool> search = {}; // use_beam_search
  std::optional<bool> drawn = {};  // do_sample
};

/// Reads the beams of a request whose other parameters have been read; width 0 if it wants none. Sets what nobody has
/// given: with beams, the checkpoint's temperature and filters do not apply. `own`: the field that asks for a search
/// of another kind with as many sequences; empty: none does. Throws failure(bad_request) naming the field if options
/// contradict each other.
beam_options settled_beams(const asked_beams& asked, sampling_params& params, const given_fields& given,
                           std::string_view own);

/// The part of a check that concerns whoever has beams of some kind, so many of them. Throws failure(bad_request).
void check_beside_beams(const sampling_params& params, int width);

/// What a request has said of beams so far; nothing: not a word.
asked_beams asked_of(const technique_uses& uses);

/// Why so many do not fit into the KV cache.
inline constexpr std::string_view beams_too_large =
  "the beams need more blocks than the KV cache has: lower `num_beams` or `max_tokens`";

/// "true", "false" or "never". Throws failure(bad_request).
early_stopping parse_early_stopping(std::string_view text);

} // namespace troupe
