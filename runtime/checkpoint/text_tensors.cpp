#include "runtime/checkpoint/text_tensors.hpp"

#include "runtime/checkpoint/arranged_checkpoint.hpp"

#include <array>
#include <utility>

namespace troupe {

namespace {

using prefix_pair = std::pair<std::string_view, std::string_view>;

/// Prefixes that transformers stores: before version 4.52, since then, in Idefics 3 and its successors; and Inkling's.
constexpr std::array text_prefixes{prefix_pair{"language_model.model.", "model."},
                                   prefix_pair{"language_model.lm_head.", "lm_head."},
                                   prefix_pair{"model.language_model.", "model."},
                                   prefix_pair{"model.text_model.", "model."}, prefix_pair{"model.llm.", "model."}};

/// The prefix of models that also speak.
constexpr std::string_view thinker = "thinker.";

/// Phi 4's encoders of images and sounds, which stand where tables of embeddings do in others.
constexpr prefix_pair encoders{"model.embed_tokens_extend.", "encoders."};

/// Phi 4's low-rank matrices for images and sounds, beside the matrices that text is multiplied with.
constexpr std::array<std::string_view, 4> modality_matrices{".lora_A.vision.", ".lora_B.vision.", ".lora_A.speech.",
                                                            ".lora_B.speech."};
constexpr std::string_view base_matrix = ".base_layer.";

} // namespace

std::string text_tensor_name(std::string_view stored) {
  const bool thinks = stored.starts_with(thinker);
  const auto name = stored.substr(thinks ? thinker.size() : 0);
  for (const auto& [from, to] : text_prefixes)
    if (name.starts_with(from))
      return std::string(to) + std::string(name.substr(from.size()));
  if (thinks && (name.starts_with("model.") || name.starts_with("lm_head.")))
    return std::string(name);
  if (stored.starts_with(encoders.first))
    return std::string(encoders.second) + std::string(stored.substr(encoders.first.size()));
  for (const auto matrix : modality_matrices)
    if (stored.find(matrix) != stored.npos)
      return "encoders." + std::string(stored);
  std::string result(stored);
  if (const auto at = result.find(base_matrix); at != result.npos)
    result.replace(at, base_matrix.size(), ".");
  return result;
}

std::unique_ptr<const checkpoint> open_text_tensors(std::unique_ptr<const checkpoint> stored) {
  arrangement how;
  for (const auto& name : stored->tensors())
    if (auto renamed = text_tensor_name(name); renamed != name)
      how.names.emplace(name, std::move(renamed));
  return arrange(std::move(stored), how);
}

} // namespace troupe
