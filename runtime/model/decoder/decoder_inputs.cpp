#include "runtime/model/decoder/decoder_inputs.hpp"

#include "runtime/model/decoder/decoder_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

/// The row of the table of learned positions for each row of a step.
std::vector<std::int32_t> position_rows(const kernels::batch& who, std::size_t offset) {
  std::vector<std::int32_t> rows;
  for (const auto& s : who.sequences)
    for (std::int32_t i = 0; i < s.rows; ++i)
      rows.push_back(s.first_position + i + static_cast<std::int32_t>(offset));
  return rows;
}

/// The row of the table of token types for each row of a step. Tokenizers may tell second texts where models do not.
std::vector<std::int32_t> token_types(const kernels::batch& who, int known) {
  std::vector<std::int32_t> types;
  for (const auto& s : who.sequences)
    for (std::int32_t i = 0; i < s.rows; ++i)
      types.push_back(known > 1 && s.second > 0 && s.first_position + i >= s.second ? 1 : 0);
  return types;
}

} // namespace

decoder_inputs::decoder_inputs(decoder_step& step)
  : step_(step), backend_(step.backend), inputs_(step.allocate(step.bytes.inputs)) {}

void decoder_inputs::embed(std::span<const token_id> tokens, const kernels::batch& who) {
  const auto& config = step_.config();
  require_in_decoder(config.part().embeds, "tokens for layers that do not begin with them");
  require_in_decoder(std::ranges::all_of(tokens, [&](token_id t) { return t >= 0 && t < config.vocab; }),
                     "a token outside the vocabulary");
  step_.begin(tokens.size());
  step_.tokens.assign(tokens.begin(), tokens.end());
  if (tokens.empty())
    return;
  const auto residual = step_.residual();
  if (step_.weights->head_gives_embedding)
    step_.enter_head();
  backend_.embed(residual, *step_.weights->embedding, tokens.data());
  if (config.embedding_scale != 1)
    backend_.scale(residual, config.embedding_scale);
  if (step_.weights->positions)
    backend_.embed_add(residual, *step_.weights->positions, position_rows(who, config.position_offset).data());
  if (step_.weights->token_types)
    backend_.embed_add(residual, *step_.weights->token_types, token_types(who, config.token_types).data());
  if (step_.weights->embedding_norm.weight)
    step_.normalise(residual, residual, step_.weights->embedding_norm);
  if (step_.weights->layer_inputs)
    make_layer_inputs(tokens);
}

void decoder_inputs::make_layer_inputs(std::span<const token_id> tokens) {
  const auto& config = step_.config();
  const auto width = as_size(config.layer_inputs), all = as_size(config.layers) * width;
  const auto normed = step_.normed(), inputs = buffer_rows(inputs_, dtype::f32, step_.rows(), all);
  const tensor known{static_cast<float*>(inputs_.get()) + as_size(step_.max_rows()) * all, dtype::f32, step_.rows(),
                     all, all};
  backend_.gather_rows(normed, step_.residual());
  step_.walk.enter(0);
  backend_.linear(inputs, normed, *step_.weights->layer_projection);
  backend_.scale(inputs, 1 / std::sqrt(static_cast<float>(config.hidden)));
  for (std::size_t i = 0; i < as_size(config.layers); ++i)
    step_.normalise(column_part(inputs, i * width, width), column_part(inputs, i * width, width),
                    step_.weights->layer_projection_norm);
  std::vector<token_id> in_table(tokens.begin(), tokens.end());
  if (config.layer_input_rows > 0) // tokens beyond have the first one's
    for (token_id& token : in_table)
      token = token < config.layer_input_rows ? token : 0;
  backend_.embed(known, *step_.weights->layer_inputs, in_table.data());
  backend_.add_rows(inputs, known, std::sqrt(static_cast<float>(width)));
  backend_.scale(inputs, 1 / std::sqrt(2.0f));
}

tensor decoder_inputs::of_layer(int i) const {
  const auto& config = step_.config();
  const auto width = as_size(config.layer_inputs);
  return column_part(buffer_rows(inputs_, dtype::f32, step_.rows(), as_size(config.layers) * width), as_size(i) * width,
                     width);
}

void decoder_inputs::gate(int i, const tensor& to, const tensor& normed) {
  const auto& layer = step_.layer(i);
  const auto gate = step_.ffn(normed.rows, as_size(step_.config().layer_inputs));
  backend_.linear_activated(gate, normed, *layer.input_gate, step_.config().act, false);
  backend_.multiply_rows(gate, of_layer(i));
  backend_.linear(to, gate, *layer.input_projection);
}

void decoder_inputs::add(int i, const tensor& normed) {
  const auto branch = step_.branch();
  backend_.gather_rows(normed, step_.residual());
  gate(i, branch, normed);
  step_.add_changed(branch, step_.layer(i).input_projection_norm);
}

} // namespace troupe
