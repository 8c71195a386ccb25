// Watermarks as a technique: who may ask for them, where their keys come from, and what they exclude.
#pragma once

#include "runtime/techniques/technique.hpp"
#include "runtime/techniques/watermark/watermark.hpp"

#include <memory>
#include <optional>

namespace troupe {

extern const technique watermark_technique;

namespace watermarks {

/// What a server keeps.
struct settings {
  std::shared_ptr<const options> mark = {}; // of every answer; null: of those that ask for one
  std::optional<hash_key> key = {};         // of requests for one that bring none
};

/// A request's use of `mark`; null: none.
technique_use_ptr marked_by(std::shared_ptr<const options> mark);

/// The mark of a use of this technique. Null: it is null.
const options* mark_of(const technique_use* use);

/// The key of the flag watermark_key_file, else of the environment's TROUPE_WATERMARK_KEY; never of the command line,
/// which other users of the machine can read. Throws failure if the file cannot be read, is empty or too long.
std::optional<hash_key> key_of_flags(const flag_values& flags);

/// The mark that flags ask for; null: none. Throws failure(bad_request) naming the field, also without a key.
std::shared_ptr<const options> mark_of_flags(const flag_values& flags);

} // namespace watermarks

} // namespace troupe
