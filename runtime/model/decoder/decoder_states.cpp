#include "runtime/model/decoder/decoder_states.hpp"

#include "runtime/model/decoder/decoder_tensors.hpp"
#include "runtime/model/recurrent_layers.hpp"

#include <algorithm>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

/// Takes neighbouring columns of f32 rows, one part after another.
class column_parts {
public:
  explicit column_parts(const tensor& of) : of_(of) {}

  tensor next(std::size_t count) {
    const tensor part{static_cast<float*>(of_.data) + first_, of_.type, of_.rows, count, of_.stride};
    first_ += count;
    return part;
  }

private:
  tensor of_;
  std::size_t first_ = 0;
};

kernels::recurrence recurrence_of(const recurrent_config& config, const recurrent_weights& weights) {
  using enum kernels::recurrence_type;
  const auto type = config.type == recurrent_type::delta ? delta
    : config.type == recurrent_type::channel_delta       ? channel_delta
    : config.type == recurrent_type::selective           ? selective
                                                         : ssd;
  return {.type = type,
          .heads = config.heads,
          .key_heads = config.key_heads,
          .key_dim = config.key_dim,
          .value_dim = config.value_dim,
          .decay = float_data(weights.decay),
          .dt_bias = float_data(weights.dt_bias),
          .skip = float_data(weights.skip),
          .most_learned = config.most_learned,
          .decay_bound = config.decay_bound,
          .least_dt = config.least_dt,
          .most_dt = config.most_dt,
          .in_turns = config.in_turns};
}

} // namespace

decoder_states::decoder_states(decoder_step& step)
  : step_(step),
    backend_(step.backend),
    recurrence_(dynamic_cast<kernels::recurrent_ops&>(step.backend)),
    in_(step.allocate(step.bytes.recurrent_in)),
    convolved_(step.allocate(step.bytes.convolved)),
    recurred_(step.allocate(step.bytes.recurred)),
    rates_(step.allocate(step.bytes.recurrent_rates)),
    low_(step.allocate(step.bytes.recurrent_low)) {
  if (const auto& r = step.config().recurrent; r.parts_norm_plain)
    ones_ = backend_.upload(std::vector<float>(as_size(std::max(r.rank, r.key_dim)), 1.0f));
}

void decoder_states::begin(const kernels::batch& who) {
  const auto& config = step_.config();
  states_ = nullptr;
  if (!config.has_states())
    return;
  if (who.recurrent != nullptr) {
    const auto& step = *who.recurrent;
    if (!step.begun)
      step.states->begin(who.sequences, step.sequences, step.saves);
    states_ = step.states;
    ends_ = !step.begun;
    return;
  }
  const auto count = static_cast<int>(who.sequences.size());
  if (!own_states_)
    own_states_ = recurrence_.make_state_cache(
      state_shape_of(config, recurrence_.states_of_a_decoder(step_.max_rows()), 0, 0));
  std::vector<kernels::sequence_state> states;
  for (std::int32_t i = 0; i < count; ++i)
    states.push_back({.slot = i});
  own_states_->begin(who.sequences, states, {});
  states_ = own_states_.get();
  ends_ = true;
}

void decoder_states::end() {
  if (states_ != nullptr && ends_)
    states_->end();
}

void decoder_states::add(int i, const tensor& normed) {
  const auto& config = step_.config();
  const auto& r = config.recurrent;
  const auto& w = *step_.layer(i).recurrent;
  const auto rows = normed.rows, channels = as_size(recurrent_channels(config)), inner = as_size(r.inner()),
             heads = as_size(r.heads);
  const int own = config.state_layer(i);
  const auto& norm = step_.layer(i).attention_norm; // behind
  const auto projected = buffer_rows(in_, dtype::f32, rows, w.in->outputs);
  const auto convolved = buffer_rows(convolved_, dtype::f32, rows, channels);
  const auto mixed = step_.attended(rows, as_size(recurrent_inner(config)));
  const kernels::convolution convolution{float_data(w.convolution), float_data(w.bias),
                                         r.type != recurrent_type::short_convolution};
  backend_.linear(projected, normed, *w.in, float_data(w.in_bias));
  column_parts parts(projected);
  if (r.type == recurrent_type::short_convolution) {
    const auto before = parts.next(channels), behind = parts.next(channels), x = parts.next(channels);
    recurrence_.multiply(x, x, before);
    recurrence_.convolve(convolved, x, convolution, *states_, own);
    recurrence_.multiply(mixed, convolved, behind);
    return step_.add_branch(i, product_site::o, mixed, *w.out, w.out_bias, norm, r.out_scale);
  }
  const auto recurred = buffer_rows(recurred_, dtype::f32, rows, inner);
  tensor gate, x, rates, betas;
  if (r.type == recurrent_type::selective) {
    x = parts.next(channels);
    gate = parts.next(inner);
    recurrence_.convolve(convolved, x, convolution, *states_, own);
    select(i, convolved, rates, betas);
    recurrence_.recur(recurred, convolved, rates, betas, recurrence_of(r, w), *states_, own);
    recurrence_.gate(mixed, recurred, gate, {});
    return step_.add_branch(i, product_site::o, mixed, *w.out, w.out_bias, norm, r.out_scale);
  }
  if (r.type == recurrent_type::channel_delta && r.rank == 0) {
    x = parts.next(channels);
    betas = parts.next(heads);
    rates = parts.next(heads * as_size(r.key_dim));
    gate = parts.next(inner);
  } else if (r.type == recurrent_type::channel_delta) {
    const auto rank = as_size(r.rank), all_rates = heads * as_size(r.key_dim);
    x = parts.next(channels);
    betas = parts.next(heads);
    const auto both = buffer_rows(rates_, dtype::f32, rows, all_rates + inner);
    const auto low = buffer_rows(low_, step_.weights->compute, rows, rank);
    column_parts of_both(both);
    rates = of_both.next(all_rates);
    gate = of_both.next(inner);
    backend_.gather_rows(low, parts.next(rank));
    backend_.linear(rates, low, *w.rate_up);
    backend_.gather_rows(low, parts.next(rank));
    backend_.linear(gate, low, *w.gate_up);
  } else {
    gate = parts.next(inner);
    x = parts.next(channels);
    if (r.type == recurrent_type::delta)
      betas = parts.next(heads);
    rates = parts.next(heads);
  }
  if (r.type == recurrent_type::ssd) {
    column_parts of_x(x);
    const auto scale = [&](const tensor& what, float by) {
      if (by != 1)
        backend_.scale(what, by);
    };
    scale(gate, r.gate_scale);
    scale(of_x.next(inner), r.x_scale);
    scale(of_x.next(as_size(r.keys())), r.b_scale);
    scale(of_x.next(as_size(r.keys())), r.c_scale);
    scale(rates, r.rate_scale);
  }
  recurrence_.convolve(convolved, x, convolution, *states_, own);
  recurrence_.recur(recurred, convolved, rates, betas, recurrence_of(r, w), *states_, own);
  recurrence_.gate(mixed, recurred, gate,
                   {.norm = r.norm,
                    .weight = float_data(w.norm),
                    .eps = r.norm_eps > 0 ? r.norm_eps : config.norm_eps,
                    .group = as_size(r.norm_group),
                    .sigmoid = r.sigmoid_gate});
  step_.add_branch(i, product_site::o, mixed, *w.out, w.out_bias, norm, r.out_scale);
}

void decoder_states::select(int i, const tensor& convolved, tensor& rates, tensor& both) {
  const auto& r = step_.config().recurrent;
  const auto& w = *step_.layer(i).recurrent;
  const auto rows = convolved.rows, rank = as_size(r.rank), dim = as_size(r.key_dim), inner = as_size(r.inner());
  const auto in = step_.attended(rows, inner);
  backend_.gather_rows(in, convolved);
  const auto all = buffer_rows(rates_, dtype::f32, rows, rank + 2 * dim + inner);
  const auto low = buffer_rows(low_, step_.weights->compute, rows, rank);
  column_parts parts(all);
  const auto made = parts.next(rank + 2 * dim);
  rates = parts.next(inner);
  backend_.linear(made, in, *w.parts);
  column_parts of_made(made);
  const auto steps = of_made.next(rank);
  both = of_made.next(2 * dim);
  if (r.parts_norm) {
    const auto normalise = [&](const tensor& to, const tensor& from, const kernels::buffer& weight) {
      backend_.rms_norm(to, from, float_data(weight ? weight : ones_),
                        r.norm_eps > 0 ? r.norm_eps : step_.config().norm_eps);
    };
    column_parts of_both(both);
    const auto keys = of_both.next(dim), queries = of_both.next(dim);
    normalise(low, steps, w.dt_norm);
    normalise(keys, keys, w.b_norm);
    normalise(queries, queries, w.c_norm);
  } else {
    backend_.gather_rows(low, steps);
  }
  backend_.linear(rates, low, *w.rate_up);
}

} // namespace troupe
