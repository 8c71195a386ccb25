#include "runtime/execution/gpu/gpu_step_runner.hpp"

#include "kernels/cuda/device/attention/attention.hpp"
#include "runtime/execution/gpu/decode_buckets.hpp"
#include "runtime/execution/hidden_states.hpp"
#include "runtime/execution/model_counters.hpp"
#include "runtime/model/decoder/decoder_sizes.hpp"
#include "runtime/model/recurrent_layers.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

namespace cuda = kernels::cuda;

/// Whether every row is the next token of one sequence and is sampled.
bool decodes_only(const step_plan& plan) {
  if (plan.sequences.size() != plan.tokens.size() || plan.logit_rows.size() != plan.tokens.size() ||
      !plan.hidden_rows.empty())
    return false;
  for (std::size_t i = 0; i < plan.logit_rows.size(); ++i)
    if (plan.logit_rows[i] != static_cast<std::int32_t>(i))
      return false;
  return true;
}

bool moves_state(const block_move& m) { return m.what == block_move::kind::copy_state || (m.image && m.image->state); }

const cuda::event& on_device(const kernels::device_event_ptr& e) { return dynamic_cast<const cuda::event&>(*e); }

} // namespace

gpu_step_runner::gpu_step_runner(runner_spec spec, std::unique_ptr<cuda::cuda_backend> backend, bool graphs, bool timed)
  : blocks_(spec.blocks),
    backend_(std::move(backend)),
    graphs_wanted_(graphs && !host_takes_part(spec.weights->config)),
    timed_(timed),
    reads_tokens_(host_reads_tokens(spec.weights->config)),
    vocab_(static_cast<std::size_t>(spec.weights->config.vocab)),
    most_decodes_(bucket_of(spec.sizes.sequences)),
    logits_bytes_(static_cast<std::size_t>(std::max(most_decodes_, spec.sizes.logit_rows())) * vocab_ * sizeof(float)),
    decoder_(std::move(spec.weights), *backend_, std::max(spec.sizes.rows, most_decodes_), spec.sizes.context),
    cache_(backend_->make_kv_cache(
      kv_shape_of(decoder_.weights().config, spec.precision, static_cast<std::size_t>(blocks_) + 1))),
    image_offset_(spec.image_offset),
    state_offset_(spec.state_offset),
    slot_tokens_(static_cast<std::size_t>(spec.sizes.sequences)) {
  if (const auto& config = decoder_.weights().config; config.has_states())
    states_ = dynamic_cast<kernels::recurrent_ops&>(*backend_).make_state_cache(
      state_shape_of(config, spec.sizes.sequences, spec.snapshots, most_state_guesses));
  if (const auto devices = backend_->softmax().size(); spec.softmax && devices > 0) {
    softmax_ = std::move(spec.softmax);
    softmax_here_ = cuda::allocate_pinned(devices * sizeof(cuda::softmax_counts));
  }
  if (spec.host_blocks > 0)
    host_pool_ = cuda::allocate_pinned(static_cast<std::size_t>(spec.host_blocks) * cache_->shape.block_bytes());
  const auto part = part_of_model();
  if (part.embeds && !part.heads)
    own_slots_ = backend_->allocate(slot_tokens_.size() * sizeof(std::int32_t));
  if (!part.heads)
    return;
  const auto bytes = static_cast<std::size_t>(most_decodes_) * vocab_ * sizeof(float);
  decode_logits_ = backend_->allocate(bytes);
  normed_states_ = backend_->allocate(states_at_once * static_cast<std::size_t>(decoder_.weights().config.hidden) *
                                      sizeof(float));
  for (std::size_t i = 0; i < logits_buffers; ++i)
    logits_.add(backend_->allocate(logits_bytes_), logits_bytes_);
}

gpu_step_runner::~gpu_step_runner() {
  try {
    backend_->queue().synchronise(); // work in flight uses memory that is freed now
    backend_->copy_queue().synchronise();
    if (softmax_asked_)
      add_softmax();
  } catch (const kernels::device_error&) { // the device has failed, so nothing is in flight
  }
}

layer_span gpu_step_runner::part_of_model() const { return decoder_.weights().config.part(); }

std::size_t gpu_step_runner::row_bytes() const {
  return static_cast<std::size_t>(decoder_.weights().config.residual_width()) * sizeof(float);
}

// Copies are behind whole steps and never waited for, so the last step's counts are told by the next call.
void gpu_step_runner::tell_softmax() {
  if (!softmax_)
    return;
  if (softmax_asked_) {
    if (!softmax_came_.happened())
      return;
    add_softmax();
  }
  auto* to = static_cast<cuda::softmax_counts*>(softmax_here_.get());
  for (const auto* counts : backend_->softmax())
    cuda::copy_to_host(backend_->queue(), to++, counts, sizeof *counts);
  softmax_came_.record(backend_->queue());
  softmax_asked_ = true;
}

void gpu_step_runner::add_softmax() {
  const auto* all = static_cast<const cuda::softmax_counts*>(softmax_here_.get());
  std::uint64_t sums = 0, recomputed = 0;
  for (std::size_t i = 0; i < backend_->softmax().size(); ++i) {
    sums += all[i].sums;
    recomputed += all[i].recomputed;
  }
  softmax_->sums += sums - std::exchange(sums_told_, sums);
  softmax_->recomputed += recomputed - std::exchange(recomputed_told_, recomputed);
  softmax_asked_ = false;
}

void gpu_step_runner::receive(const step_tokens& tokens) {
  constexpr std::size_t most_in_flight = 64; // of steps whose tokens a plan may wait for
  if (softmax_asked_ && softmax_came_.happened())
    add_softmax();
  tokens_known_.push_back(tokens);
  if (tokens_known_.size() > most_in_flight)
    tokens_known_.pop_front();
  if (tokens.sampled)
    for (const auto& sampled : tokens.sampled->sampled)
      slot_tokens_[static_cast<std::size_t>(sampled.slot)] = sampled.token.id;
}

step_output gpu_step_runner::run(const step_plan& plan, const stage_rows* before) {
  const auto part = part_of_model();
  const auto rows = static_cast<int>(plan.tokens.size());
  const bool decode = graphs_wanted_ && decodes_only(plan);
  lay_out(plan, decode ? bucket_of(rows) : rows);
  // Recorded steps run no code of the host, so states are told of a step here.
  const kernels::recurrent_step recurrent{states_.get(), plan.states, plan.saves, true};
  const kernels::batch batch{sequences_, tables_, states_ ? &recurrent : nullptr, plan.common};
  move_states(plan.moves);
  if (states_)
    states_->begin(plan.sequences, plan.states, plan.saves);
  backend_->stage({slots_or_tokens_, batch, part.heads ? logit_rows_ : std::span<const std::int32_t>(), decode});
  move_blocks(plan.moves);
  const auto* slots = part.embeds ? wait_for_slots(plan) : nullptr;
  if (reads_tokens_ && slots != nullptr && std::ranges::any_of(slots_or_tokens_, [](token_id t) { return t < 0; }))
    read_tokens(slots);
  if (before) {
    if (reads_tokens_)
      tokens_ = before->tokens;
    read_rows(plan, *before);
  }
  const auto began = timed_ ? std::make_shared<cuda::event>(true) : nullptr;
  if (began)
    began->record(backend_->queue());
  backend_->begin_step(slots);

  const auto shape = decode ? backend_->launch_shape() : std::vector<std::uint64_t>{};
  kernels::buffer lent;
  kernels::tensor logits;
  if (part.heads) {
    lent = logits_.lend(logits_bytes_, [this](std::size_t bytes) { return backend_->allocate(bytes); });
    logits.data = shape.empty() ? lent.get() : decode_logits_.get();
    logits.rows = logit_rows_.size();
    logits.cols = logits.stride = vocab_;
  }
  graphs_.run(*backend_, shape, [&] {
    if (before)
      decoder_.know(before->tokens);
    else
      decoder_.embed(tokens_, batch);
    decoder_.run(batch, *cache_);
    if (part.heads)
      decoder_.conclude(logit_rows_, logits);
  });
  if (states_)
    states_->end();
  if (part.heads && !shape.empty())
    cuda::copy_on_device(backend_->queue(), lent.get(), logits.data, plan.logit_rows.size() * vocab_ * sizeof(float));
  if (!part.heads) {
    const auto bytes = plan.tokens.size() * row_bytes();
    lent = passed_.lend(bytes, [](std::size_t size) { return cuda::allocate_pinned(size); });
    backend_->settle(decoder_.residual());
    cuda::copy_to_host(backend_->queue(), lent.get(), decoder_.residual().data, bytes);
  }

  step_output output;
  if (part.heads && !plan.hidden_rows.empty())
    give_states(plan, output);
  auto done = std::make_shared<cuda::event>(timed_);
  done->record(backend_->queue());
  tell_softmax();
  if (timed_)
    timings_.push_back({began, done});
  hazards_.add(plan, done);
  const auto values = std::static_pointer_cast<const float>(lent);
  if (part.heads) {
    output.logits = values;
    output.vocab = vocab_;
    output.ready = done;
  } else {
    output.passed = std::make_shared<const stage_rows>(
      stage_rows{.rows = values, .ready = done, .tokens = reads_tokens_ ? tokens_ : std::vector<token_id>()});
  }
  return output;
}

void gpu_step_runner::give_states(const step_plan& plan, step_output& output) {
  const auto width = static_cast<std::size_t>(decoder_.weights().config.hidden);
  const auto rows = std::span(plan.hidden_rows);
  const auto memory = hidden_.lend(rows.size() * width * sizeof(float),
                                   [](std::size_t n) { return cuda::allocate_pinned(n); });
  for (std::size_t first = 0; first < rows.size(); first += states_at_once) {
    const auto some = rows.subspan(first, std::min<std::size_t>(states_at_once, rows.size() - first));
    decoder_.conclude({}, {}, some, {normed_states_.get(), kernels::dtype::f32, some.size(), width, width});
    cuda::copy_to_host(backend_->queue(), static_cast<float*>(memory.get()) + first * width, normed_states_.get(),
                       some.size() * width * sizeof(float));
  }
  output.hidden = std::static_pointer_cast<const float>(memory);
  output.width = width;
}

// Waits for the slots of the step that the plan names: those of other microbatches may be sampled much later. A sampler
// that goes on meanwhile writes other slots.
const std::int32_t* gpu_step_runner::wait_for_slots(const step_plan& plan) {
  while (tokens_known_.size() > 1 && tokens_known_.front().step < plan.after_tokens_of)
    tokens_known_.pop_front();
  if (tokens_known_.empty() || !tokens_known_.front().slots)
    return nullptr;
  const auto& known = tokens_known_.front();
  if (plan.after_tokens_of > 0)
    cuda::wait_for(backend_->queue(), on_device(known.ready));
  if (!own_slots_)
    return known.slots.get();
  cuda::copy_on_device(backend_->queue(), own_slots_.get(), known.slots.get(),
                       slot_tokens_.size() * sizeof(std::int32_t));
  return static_cast<const std::int32_t*>(own_slots_.get());
}

void gpu_step_runner::read_tokens(const std::int32_t* slots) {
  std::vector<token_id> sampled(slot_tokens_.size());
  cuda::copy_to_host(backend_->queue(), sampled.data(), slots, sampled.size() * sizeof(token_id));
  backend_->queue().synchronise();
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (slots_or_tokens_[i] < 0)
      tokens_[i] = sampled[static_cast<std::size_t>(slot_of(slots_or_tokens_[i]))];
}

// The rows that the stage before lends are held until they are read. Padding rows have what earlier steps left there.
void gpu_step_runner::read_rows(const step_plan& plan, const stage_rows& before) {
  while (!reading_.empty() && reading_.front().read->happened())
    reading_.pop_front();
  if (const auto* from_device = dynamic_cast<const cuda::event*>(before.ready.get()))
    cuda::wait_for(backend_->queue(), *from_device);
  cuda::copy_to_device(backend_->queue(), decoder_.receive(tokens_.size()).data, before.rows.get(),
                       plan.tokens.size() * row_bytes());
  auto read = std::make_shared<cuda::event>();
  read->record(backend_->queue());
  reading_.push_back({before.rows, std::move(read)});
}

double gpu_step_runner::device_ms() {
  for (; !timings_.empty(); timings_.pop_front()) {
    timings_.front().done->synchronise();
    device_ms_ += cuda::milliseconds_between(*timings_.front().began, *timings_.front().done);
  }
  return device_ms_;
}

void gpu_step_runner::lay_out(const step_plan& plan, int rows) {
  slots_or_tokens_ = plan.tokens;
  for (auto& t : slots_or_tokens_)
    if (!part_of_model().embeds)
      t = 0;
    else if (t < 0 && !tokens_known_.back().slots)
      t = slot_tokens_[static_cast<std::size_t>(slot_of(t))];
  sequences_ = plan.sequences;
  tables_ = plan.block_tables;
  logit_rows_ = plan.logit_rows;
  for (auto row = static_cast<std::int32_t>(plan.tokens.size()); row < rows; ++row) {
    sequences_.push_back({row, 1, 0, static_cast<std::int32_t>(tables_.size())});
    tables_.push_back(blocks_);
    slots_or_tokens_.push_back(0);
    logit_rows_.push_back(row);
  }
  tokens_ = slots_or_tokens_;
  std::ranges::transform(tokens_, tokens_.begin(), [](token_id t) { return std::max(t, 0); });
}

void gpu_step_runner::move(std::span<const block_move> moves) {
  move_states(moves);
  move_blocks(moves);
}

// In the order of the steps, which all use states. Those outside are waited for.
void gpu_step_runner::move_states(std::span<const block_move> moves) {
  if (!states_)
    return; // they are another stage's
  auto& ops = dynamic_cast<kernels::recurrent_ops&>(*backend_);
  for (const auto& m : moves) {
    if (m.what == block_move::kind::copy_state) {
      const kernels::state_copy copy{m.from, m.to};
      ops.copy_states(*states_, {&copy, 1});
    } else if (moves_state(m) && m.what == block_move::kind::save) {
      const kernels::state_export out{m.from, m.image->bytes.data() + state_offset_};
      ops.export_states(*states_, {&out, 1});
    } else if (moves_state(m)) {
      const kernels::state_import in{m.image->bytes.data() + state_offset_, m.to, m.image->position()};
      ops.import_states(*states_, {&in, 1});
    }
  }
}

// On the copy stream, concurrent with the steps in flight unless one of them uses a block that is moved. Images are in
// ordinary memory of others, so they are waited for.
void gpu_step_runner::move_blocks(std::span<const block_move> moves) {
  using kind = block_move::kind;
  if (std::ranges::all_of(moves, moves_state))
    return;
  const auto& aside = backend_->copy_queue();
  cuda::event before, after;
  const auto in_use = [this](const block_move& m) {
    if (moves_state(m))
      return false;
    const bool reads = m.what != kind::swap_in && m.what != kind::load;
    const bool writes = m.what != kind::swap_out && m.what != kind::save;
    return (reads && hazards_.in_use(m.from)) || (writes && hazards_.in_use(m.to));
  };
  if (std::ranges::any_of(moves, in_use)) {
    before.record(backend_->queue());
    cuda::wait_for(aside, before);
  }
  const auto block_bytes = cache_->shape.block_bytes();
  const auto slot = [&](std::int32_t index) {
    return static_cast<char*>(host_pool_.get()) + static_cast<std::size_t>(index) * block_bytes;
  };
  bool images = false;
  for (const auto& m : moves) {
    if (moves_state(m))
      continue; // it was moved ahead
    switch (m.what) {
      case kind::copy: copies_.push_back({m.from, m.to}); break;
      case kind::swap_out:
        copy_blocks();
        backend_->save_block(aside, *cache_, m.from, slot(m.to));
        break;
      case kind::swap_in:
        copy_blocks();
        backend_->restore_block(aside, *cache_, m.to, slot(m.from));
        break;
      case kind::save:
        copy_blocks();
        backend_->save_block(aside, *cache_, m.from, m.image->bytes.data() + image_offset_);
        images = true;
        break;
      case kind::load:
        copy_blocks();
        backend_->restore_block(aside, *cache_, m.to, m.image->bytes.data() + image_offset_);
        images = true;
        break;
      case kind::copy_state: break;
    }
  }
  copy_blocks();
  if (images)
    aside.synchronise();
  after.record(aside);
  cuda::wait_for(backend_->queue(), after);
}

void gpu_step_runner::copy_blocks() {
  if (!copies_.empty())
    backend_->copy_blocks_on(backend_->copy_queue(), *cache_, copies_);
  copies_.clear();
}

} // namespace troupe
