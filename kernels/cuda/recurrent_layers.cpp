#include "kernels/cuda/recurrent_layers.hpp"

#include "kernels/cuda/expect.hpp"

namespace troupe::kernels::cuda {

namespace {

const float* floats_of(const tensor& t) { return static_cast<const float*>(t.data); }

} // namespace

void recurrent_layers::convolve(const tensor& out, const tensor& in, const convolution& how,
                                const device_state_cache& states, int layer) {
  cuda::convolve(on_, convolution_of(out, in, how, states.layer(layer), states));
}

void recurrent_layers::recall_tokens(std::int32_t* to, const std::int32_t* tokens, std::size_t rows,
                                     const device_state_cache& states, int index) {
  const auto& own = states.shape.spread.at(static_cast<std::size_t>(index));
  expect(own.channels == 1 && own.spacing == 1, "recall_tokens: the state must have one token of each row");
  const auto bytes = rows * own.rows() * sizeof(std::int32_t);
  if (bytes == 0)
    return;
  recall_params p;
  p.to = recalled_.reserve<std::int32_t>(bytes);
  p.tokens = step_.tokens(on_, tokens, rows);
  p.states = states.spread(index);
  p.runs = step_.states(on_, states);
  recall(on_, p);
  copy_to_host(on_, to, p.to, bytes);
  on_.synchronise();
}

void recurrent_layers::convolve_spread(const tensor& out, const tensor& in, const convolution& how,
                                       const device_state_cache& states, int index) {
  cuda::convolve_spread(on_,
                        {convolution_of(out, in, how, states.spread(index), states),
                         states.shape.spread[static_cast<std::size_t>(index)].spacing});
}

convolve_params recurrent_layers::convolution_of(const tensor& out, const tensor& in, const convolution& how,
                                                 const layer_states& of, const device_state_cache& states) {
  const auto channels = static_cast<std::size_t>(of.channels);
  expect(in.type == dtype::f32 && out.type == dtype::f32 && in.cols == channels && out.cols == channels,
         "convolve: both must be f32 with the state's channels");
  return {static_cast<float*>(out.data), out.stride, floats_of(in), in.stride, how, of, step_.states(on_, states)};
}

void recurrent_layers::take_agreed(const tensor& out, const tensor& a, const tensor& b, const tensor& value,
                                   float scale) {
  for (const auto* t : {&out, &a, &b, &value})
    expect(t->type == dtype::f32 && t->rows == out.rows && t->cols == out.cols,
           "take_agreed: all must be f32 of one shape");
  cuda::take_agreed(on_, {out, a, b, value, scale});
}

void recurrent_layers::recur(const tensor& out, const tensor& in, const tensor& rates, const tensor& betas,
                             const recurrence& how, const device_state_cache& states, int layer) {
  const auto& shape = states.shape;
  const bool by_channel = how.type == recurrence_type::channel_delta, scans = how.type == recurrence_type::selective;
  expect(how.type != recurrence_type::none && how.heads == shape.heads && how.key_dim == shape.key_dim &&
           how.value_dim == shape.value_dim && shape.decays == by_channel && shape.rates == scans && how.heads > 0 &&
           (scans ? how.key_heads == 0 : how.key_heads > 0 && how.heads % how.key_heads == 0),
         "recur: heads of another shape than the states'");
  const auto heads = static_cast<std::size_t>(how.heads), values = heads * static_cast<std::size_t>(how.value_dim),
             keys = static_cast<std::size_t>(how.key_heads * how.key_dim);
  expect(in.type == dtype::f32 && out.type == dtype::f32 && in.cols == values + 2 * keys && out.cols == values,
         "recur: rows of another shape than the heads'");
  const auto key_dim = static_cast<std::size_t>(how.key_dim);
  expect(
    rates.type == dtype::f32 && rates.cols == (scans ? values : heads * (by_channel ? key_dim : 1)) &&
      (how.type == recurrence_type::ssd || (betas.type == dtype::f32 && betas.cols == (scans ? 2 * key_dim : heads))),
    "recur: rates or betas of another shape than the heads'");
  recur_params p;
  p.out = static_cast<float*>(out.data);
  p.out_stride = out.stride;
  p.in = floats_of(in);
  p.in_stride = in.stride;
  p.rates = floats_of(rates);
  p.rates_stride = rates.stride;
  p.betas = floats_of(betas);
  p.betas_stride = betas.stride;
  p.how = how;
  p.states = states.layer(layer);
  p.runs = step_.states(on_, states);
  cuda::recur(on_, p);
}

void recurrent_layers::gate(const tensor& out, const tensor& x, const tensor& gate, const gated_rows& how) {
  constexpr std::size_t most_groups = 65535; // blocks of a grid in the y direction
  expect(gate.type == dtype::f32 && x.type != dtype::f16 && out.type != dtype::f16 && x.cols == gate.cols &&
           out.cols == x.cols,
         "gate: f32 gates of rows in f32 or bf16");
  expect(how.norm == gate_norm::none || (how.group > 0 && x.cols / how.group < most_groups),
         "gate: groups of no columns, or too many of them");
  gate_params p;
  p.out = out.data;
  p.out_type = out.type;
  p.out_stride = out.stride;
  p.x = x.data;
  p.x_type = x.type;
  p.x_stride = x.stride;
  p.gate = floats_of(gate);
  p.gate_stride = gate.stride;
  p.how = how;
  p.rows = x.rows;
  p.cols = x.cols;
  cuda::gate(on_, p);
}

void recurrent_layers::multiply(const tensor& out, const tensor& a, const tensor& b) {
  expect(a.type == dtype::f32 && b.type == dtype::f32 && out.type != dtype::f16 && a.cols == b.cols &&
           out.cols == a.cols,
         "multiply: f32 rows of the same columns");
  multiply_params p;
  p.out = out.data;
  p.out_type = out.type;
  p.out_stride = out.stride;
  p.a = floats_of(a);
  p.a_stride = a.stride;
  p.b = floats_of(b);
  p.b_stride = b.stride;
  p.rows = out.rows;
  p.cols = out.cols;
  cuda::multiply(on_, p);
}

} // namespace troupe::kernels::cuda
