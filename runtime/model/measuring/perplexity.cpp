#include "runtime/model/measuring/perplexity.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe {

namespace {

constexpr std::size_t most_logit_bytes = std::size_t(64) << 20; // of one step

/// -ln of a token's probability.
double loss_of(std::span<const float> logits, token_id token) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float l : logits)
    sum += std::exp(l - top);
  return top + std::log(sum) - logits[static_cast<std::size_t>(token)];
}

} // namespace

double perplexity_result::perplexity() const { return std::exp(loss); }

std::size_t perplexity_logit_rows(int vocab, int max_rows) {
  return std::clamp(most_logit_bytes / (static_cast<std::size_t>(vocab) * sizeof(float)), std::size_t(1),
                    static_cast<std::size_t>(max_rows));
}

perplexity_result measure_perplexity(decoder& graph, kernels::backend& backend, kernels::kv_cache& cache,
                                     std::span<const token_id> tokens, int context, int stride,
                                     const progress_fn& progress) {
  if (tokens.size() < 2)
    throw failure(errc::bad_request,
                  "a text of " + std::to_string(tokens.size()) +
                    " tokens is too short: the second is the first to be predicted");
  if (context < 2 || stride < 1 || stride >= context)
    throw failure(errc::internal, "perplexity: windows must hold 2 tokens and overlap");
  const auto vocab = static_cast<std::size_t>(graph.weights().config.vocab);
  const auto step = perplexity_logit_rows(graph.weights().config.vocab, graph.max_rows());
  const auto memory = backend.allocate(step * vocab * sizeof(float));
  std::vector<float> logits(step * vocab);
  std::vector<std::int32_t> blocks(cache.shape.blocks), wanted;
  std::iota(blocks.begin(), blocks.end(), 0);

  perplexity_result result;
  double sum = 0, squares = 0;
  std::size_t counted = 1; // tokens done; the first cannot be predicted
  for (std::size_t begin = 0; counted < tokens.size(); begin += static_cast<std::size_t>(stride)) {
    const auto window = tokens.subspan(begin, std::min(tokens.size() - begin, static_cast<std::size_t>(context)));
    for (std::size_t first = 0; first + 1 < window.size(); first += step) {
      const auto rows = std::min(step, window.size() - 1 - first); // the last token predicts nothing here
      wanted.clear();
      for (std::size_t r = 0; r < rows; ++r)
        if (begin + first + r + 1 >= counted)
          wanted.push_back(static_cast<std::int32_t>(r));
      const kernels::sequence_rows all{.rows = static_cast<std::int32_t>(rows),
                                       .first_position = static_cast<std::int32_t>(first),
                                       .length = static_cast<std::int32_t>(window.size())};
      const kernels::tensor out{memory.get(), kernels::dtype::f32, wanted.size(), vocab, vocab};
      graph.forward(window.subspan(first, rows), {{&all, 1}, blocks}, wanted, cache, out);
      if (!wanted.empty())
        backend.download(logits.data(), out);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const auto next = window[first + static_cast<std::size_t>(wanted[i]) + 1];
        const double loss = loss_of({&logits[i * vocab], vocab}, next);
        sum += loss;
        squares += loss * loss;
        ++result.tokens;
      }
      if (progress)
        progress(begin + first + rows + 1, tokens.size());
    }
    counted = begin + window.size();
  }
  const auto n = static_cast<double>(result.tokens);
  result.loss = sum / n;
  result.deviation = n > 1 ? std::sqrt(std::max(0.0, squares / n - result.loss * result.loss) / (n - 1)) : 0;
  return result;
}

} // namespace troupe
