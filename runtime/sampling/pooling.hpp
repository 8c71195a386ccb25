// How the hidden states of a prompt become one vector, its embedding. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// Which of a prompt's hidden states, those behind the final norm, make its embedding.
enum class pooling : std::uint8_t {
  none, // there is no embedding
  mean, // of all tokens
  last, // the last token's
  cls,  // the first token's
};

/// A text of the checkpoint's that goes ahead of texts to be embedded ("query: ").
struct text_prompt {
  std::string name, text;
};

/// How a checkpoint's embeddings are made.
struct embedding_style {
  // Checkpoints that say nothing are treated as by vLLM.
  pooling how = pooling::last;
  bool normalise = true;                 // to length 1
  std::string refusal = {};              // why there are no embeddings, for clients; empty: there are
  std::vector<text_prompt> prompts = {}; // what goes ahead of texts, by the kind of text
  std::string usual_prompt = {};         // the name of that of texts whose kind nobody says; empty: none
};

} // namespace troupe
