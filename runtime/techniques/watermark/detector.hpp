// Tells from the tokens of a text whether it was marked with a key.
#pragma once

#include "runtime/techniques/watermark/watermark.hpp"

#include <cstddef>
#include <span>

namespace troupe::watermarks {

struct detection {
  std::size_t tokens = 0; // counted
  double score = 0;       // green tokens, or the sum of -log(1 - u)
  double z = 0;           // standard deviations of `score` above its mean in unmarked texts
  double p = 1;           // of a score as high in an unmarked text: the exact tail, binomial or gamma
};

/// Each value of the pseudo-random function counts once, however often a text repeats itself, so that `p` holds for any
/// unmarked text. Of Gumbel, where a repeated context is not marked, only its first occurrence counts; the
/// subkey with the least p is what is told, and p is corrected for the choice among them.
detection detect(const options& mark, std::span<const token_id> text);

} // namespace troupe::watermarks
