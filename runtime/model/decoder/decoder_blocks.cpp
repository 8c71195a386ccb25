#include "runtime/model/decoder/decoder_blocks.hpp"

#include "runtime/model/decoder/decoder_tensors.hpp"

namespace troupe {

using kernels::tensor;

decoder_blocks::decoder_blocks(decoder_step& step, decoder_attention& attention)
  : step_(step),
    backend_(step.backend),
    attention_(attention),
    joined_(step.allocate(step.bytes.joined)),
    read_(step.allocate(step.bytes.joined_read)) {}

tensor decoder_blocks::passed() const {
  return buffer_rows(joined_, kernels::dtype::f32, step_.rows(), 2 * as_size(step_.config().hidden));
}

tensor decoder_blocks::half(std::size_t index) const {
  const auto hidden = as_size(step_.config().hidden);
  return column_part(passed(), index * hidden, hidden);
}

void decoder_blocks::begin() {
  if (step_.config().part().embeds)
    backend_.gather_rows(half(1), step_.residual());
  else
    backend_.gather_rows(step_.residual(), half(0));
}

void decoder_blocks::read(int i, const tensor& normed, kernels::kv_cache& cache, const kernels::batch& who) {
  const auto& layer = step_.layer(i);
  const auto residual = step_.residual(), branch = step_.branch();
  const auto joined = buffer_rows(read_, step_.weights->compute, step_.rows(), 2 * residual.cols);
  backend_.gather_rows(half(0), residual);
  step_.normalise(joined, passed(), layer.block->joined_norm);
  const auto attended = attention_.attend(i, joined, cache, who);
  step_.multiply(i, product_site::o, branch, attended, *layer.o, layer.o_bias, kernels::store::set);
  step_.normalise(normed, branch, layer.post_norm);
  const auto ffn = step_.ffn(normed.rows, as_size(step_.config().ffn_of(i)));
  step_.activate(i, ffn, normed);
  step_.multiply(i, product_site::down, branch, ffn, *layer.mlp.down, layer.mlp.down_bias, kernels::store::set);
  backend_.gather_rows(normed, branch);
  backend_.linear(branch, normed, *layer.block->output);
  backend_.add_rows(branch, residual, 1);
  step_.normalise(normed, branch, layer.input_norm);
}

void decoder_blocks::end() { backend_.gather_rows(half(0), step_.residual()); }

} // namespace troupe
