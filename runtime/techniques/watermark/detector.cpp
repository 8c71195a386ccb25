#include "runtime/techniques/watermark/detector.hpp"

#include <boost/math/special_functions/beta.hpp>
#include <boost/math/special_functions/gamma.hpp>

#include <cmath>
#include <unordered_set>

namespace troupe::watermarks {

namespace {

using plain_doubles = boost::math::policies::policy<boost::math::policies::promote_double<false>>;

void judge_green(const options& mark, detection& d) {
  const auto n = static_cast<double>(d.tokens), gamma = static_cast<double>(green_limit(mark.gamma)) * 0x1p-32;
  d.z = (d.score - n * gamma) / std::sqrt(n * gamma * (1 - gamma));
  if (d.score > 0)
    d.p = boost::math::ibeta(d.score, n - d.score + 1, gamma, plain_doubles());
}

void judge_gumbel(detection& d) {
  const auto n = static_cast<double>(d.tokens);
  d.z = (d.score - n) / std::sqrt(n);
  d.p = boost::math::gamma_q(n, d.score, plain_doubles());
}

} // namespace

namespace {

detection detect_by(const options& mark, std::span<const token_id> text) {
  detection d;
  std::unordered_set<std::uint64_t> counted;
  const auto limit = green_limit(mark.gamma);
  const auto width = static_cast<std::size_t>(mark.width);
  for (std::size_t i = width; i < text.size(); ++i) {
    const place here(mark, text.subspan(i - width, width));
    if (!counted.insert(mark.what == kind::gumbel ? here.seed() : here.identity(text[i])).second)
      continue;
    ++d.tokens;
    if (mark.what == kind::green)
      d.score += here.value(text[i]) < limit;
    else
      d.score -= std::log1p(-here.uniform(text[i]));
  }
  if (d.tokens == 0)
    return d;
  if (mark.what == kind::green)
    judge_green(mark, d);
  else
    judge_gumbel(d);
  return d;
}

} // namespace

detection detect(const options& mark, std::span<const token_id> text) {
  auto best = detect_by(mark, text);
  if (mark.what == kind::green)
    return best;
  for (std::uint32_t number = 1; number < subkeys; ++number) {
    auto other = mark;
    other.key = subkey(mark.key, number);
    if (const auto found = detect_by(other, text); found.p < best.p)
      best = found;
  }
  best.p = -std::expm1(static_cast<double>(subkeys) * std::log1p(-best.p)); // of the best of so many (Šidák)
  return best;
}

} // namespace troupe::watermarks
