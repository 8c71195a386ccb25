// The tokens by which a model was taught to fill in the middle of a text, and the prompts that are made of them.
#pragma once

#include "runtime/support/types.hpp"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class tokenizer;

struct infill_tokens {
  token_id prefix = 0, suffix = 0;
  std::optional<token_id> middle = {};                          // nothing: the prefix comes last, and is continued
  bool suffix_first = false;                                    // as Codestral and Seed-Coder have it
  std::optional<token_id> pad = {}, repository = {}, file = {}; // around other files; mostly none
  std::optional<token_id> end = {}; // of what was filled in, where that is a token of its own

  std::vector<token_id> all() const;
  /// The tokens that end what is filled in, beside EOS: behind them, the model would go on with another file.
  std::vector<token_id> ends() const;
};

/// The tokens as a GGUF file names them; any may be missing.
struct named_infill {
  std::optional<token_id> prefix = {}, suffix = {}, middle = {}, pad = {}, repository = {}, file = {};
};

/// What the file names, or else what the vocabulary has under the names that models are known to use, in which a text
/// is never found. Nothing if there is no pair for prefix and suffix.
std::optional<infill_tokens> find_infill(const tokenizer& tokens, const named_infill& named = {});

/// Another file, or a part of one.
struct infill_context {
  std::string name = {}, text = {};
};

/// The prompt between a prefix and a suffix. `encode`: a text's tokens, without special ones. `begin`: what the
/// tokenizer puts ahead of all texts. `name`: of the file that is filled in, where the model was taught names.
std::vector<token_id> infill_prompt(const infill_tokens& with, std::span<const token_id> begin,
                                    std::span<const token_id> prefix, std::span<const token_id> suffix,
                                    std::span<const infill_context> others,
                                    const std::function<std::vector<token_id>(std::string_view)>& encode);

} // namespace troupe
