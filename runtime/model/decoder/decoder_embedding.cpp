// The part of class decoder that reads a step's inputs: tokens, positions, what layers get of each token, and rows of
// the layers before.
#include "runtime/model/decoder/decoder.hpp"
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

void decoder::embed(std::span<const token_id> tokens, const kernels::batch& who) {
  const auto& config = weights_->config;
  require_in_decoder(config.part().embeds, "tokens for layers that do not begin with them");
  require_in_decoder(std::ranges::all_of(tokens, [&](token_id t) { return t >= 0 && t < config.vocab; }),
                     "a token outside the vocabulary");
  begin(tokens.size());
  if (tokens.empty())
    return;
  if (weights_->head_gives_embedding)
    enter_head();
  backend_.embed(residual(), *weights_->embedding, tokens.data());
  if (config.embedding_scale != 1)
    backend_.scale(residual(), config.embedding_scale);
  if (weights_->positions)
    backend_.embed_add(residual(), *weights_->positions, position_rows(who, config.position_offset).data());
  if (weights_->token_types)
    backend_.embed_add(residual(), *weights_->token_types, token_types(who, config.token_types).data());
  if (weights_->embedding_norm.weight)
    normalise(residual(), residual(), weights_->embedding_norm);
  if (weights_->layer_inputs)
    make_layer_inputs(tokens);
}

void decoder::make_layer_inputs(std::span<const token_id> tokens) {
  const auto& config = weights_->config;
  const auto width = as_size(config.layer_inputs), all = as_size(config.layers) * width;
  const auto normed = buffer_rows(normed_, weights_->compute, rows_, as_size(config.hidden)),
             inputs = buffer_rows(inputs_, dtype::f32, rows_, all);
  const tensor known{static_cast<float*>(inputs_.get()) + as_size(max_rows_) * all, dtype::f32, rows_, all, all};
  backend_.gather_rows(normed, residual());
  walk_.enter(0);
  backend_.linear(inputs, normed, *weights_->layer_projection);
  backend_.scale(inputs, 1 / std::sqrt(static_cast<float>(config.hidden)));
  for (std::size_t i = 0; i < as_size(config.layers); ++i)
    normalise(column_part(inputs, i * width, width), column_part(inputs, i * width, width),
              weights_->layer_projection_norm);
  std::vector<token_id> in_table(tokens.begin(), tokens.end());
  if (config.layer_input_rows > 0) // tokens beyond have the first one's
    for (token_id& token : in_table)
      token = token < config.layer_input_rows ? token : 0;
  backend_.embed(known, *weights_->layer_inputs, in_table.data());
  backend_.add_rows(inputs, known, std::sqrt(static_cast<float>(width)));
  backend_.scale(inputs, 1 / std::sqrt(2.0f));
}

void decoder::add_layer_input(int i, const tensor& residual, const tensor& normed) {
  const auto& config = weights_->config;
  const auto& layer = weights_->layer(i);
  const auto width = as_size(config.layer_inputs), all = as_size(config.layers) * width;
  const auto gate = buffer_rows(ffn_, weights_->compute, normed.rows, width);
  const auto branch = buffer_rows(branch_, dtype::f32, residual.rows, residual.cols);
  backend_.gather_rows(normed, residual);
  backend_.linear_activated(gate, normed, *layer.input_gate, config.act, false);
  backend_.multiply_rows(gate, column_part(buffer_rows(inputs_, dtype::f32, rows_, all), as_size(i) * width, width));
  backend_.linear(branch, gate, *layer.input_projection);
  add_changed(residual, branch, layer.input_projection_norm);
}

void decoder::receive(const tensor& rows) {
  require_in_decoder(rows.type == dtype::f32 && rows.cols == as_size(weights_->config.hidden), "rows of another shape");
  const auto to = receive(rows.rows);
  if (rows.rows > 0)
    backend_.gather_rows(to, rows);
}

tensor decoder::receive(std::size_t rows) {
  begin(rows);
  return residual();
}

} // namespace troupe
