// Kernels on one thread, for counting their instructions (count_instructions.py): small, so that steps one by one take
// seconds. On x86-64 this program counts by itself: the processor traps behind each instruction. On ARM it calls a number
// that is no system call before and behind each case, which the plugin of QEMU (instruction_plugin.cpp) looks for.
#include "kernels/cpu/dispatch.hpp"
#include "kernels/formats/bf16.hpp"
#include "kernels/recurrent.hpp"
#include "tests/bench/measure.hpp"

#include <csignal>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

using namespace troupe::kernels;
using namespace troupe::bench;

namespace {

constexpr long mark = 0x7401; // as in instruction_plugin.cpp

struct counted_case {
  std::string name, unit;
  double units = 1; // in one call
  std::function<void()> call;
};

tensor view_of(std::vector<float>& x, std::size_t rows) {
  return {x.data(), dtype::f32, rows, x.size() / rows, x.size() / rows};
}

/// Random weights with moderate scales.
std::vector<std::uint8_t> weights_of(weight_format format, std::size_t rows, std::size_t cols) {
  std::minstd_rand engine(1);
  std::vector<std::uint8_t> to(rows * row_bytes(format, cols));
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = static_cast<std::uint8_t>(is_float(format) && i % size_of(dtype_of(format)) + 1 == size_of(dtype_of(format))
                                        ? 0x3d // about 0.1
                                        : engine() >> 8 & 0x3f);
  return to;
}

void add_products(std::vector<counted_case>& to, const std::shared_ptr<backend>& device, weight_format format,
                  dtype compute) {
  constexpr std::size_t inputs = 1024, outputs = 128, most = 24; // whole tiles of all targets
  const auto data = weights_of(format, outputs, inputs);
  const stored_matrix stored{data.data(), format, outputs, inputs};
  const std::shared_ptr<matrix> packed = device->pack({&stored, 1}, compute);
  auto in = std::make_shared<device_tensor>(*device, compute, most, inputs);
  auto out = std::make_shared<device_tensor>(*device, dtype::f32, most, outputs);
  const auto x = random_floats(most * inputs);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (compute == dtype::f32)
      static_cast<float*>(in->view.data)[i] = x[i] == 0 ? 1 : x[i];
    else
      static_cast<std::uint16_t*>(in->view.data)[i] = to_bf16(x[i] == 0 ? 1 : x[i]);
  for (const std::size_t rows : {std::size_t(1), most})
    to.push_back({std::string("linear ") + to_string(format) + (compute == dtype::f32 ? "" : " as bf16") + ", " +
                    std::to_string(rows) + (rows == 1 ? " row" : " rows"),
                  "output of 1,024 inputs", double(rows * outputs), [=] {
                    auto from = in->view, all = out->view;
                    from.rows = all.rows = rows;
                    device->linear(all, from, *packed);
                  }});
}

void add_attention(std::vector<counted_case>& to, const std::shared_ptr<backend>& device, kv_type type) {
  constexpr int heads = 4, kv_heads = 1, dim = 64, context = 512, chunk = 8;
  constexpr std::size_t columns = (heads + 2 * kv_heads) * dim;
  auto table = std::make_shared<std::vector<std::int32_t>>(context / block_tokens);
  std::iota(table->begin(), table->end(), 0);
  const std::shared_ptr<kv_cache> cache = device->make_kv_cache({1, kv_heads, dim, type, table->size()});
  const auto rope = std::make_shared<std::vector<float>>(std::size_t(context) * dim, 0.7f);
  auto rows = std::make_shared<std::vector<float>>(random_floats(context * columns));
  const auto write = [=](int count) {
    const sequence_rows last{0, count, context - count, 0};
    device->rope_write_kv(view_of(*rows, context), heads, {}, rope->data(), *cache, 0, {{&last, 1}, *table});
  };
  write(context);
  auto out = std::make_shared<device_tensor>(*device, type == kv_type::f32 ? dtype::f32 : dtype::bf16, chunk,
                                             std::size_t(heads) * dim);
  for (const int count : {1, chunk}) {
    double pairs = 0;
    for (int i = 0; i < count; ++i)
      pairs += double(heads) * (context - i);
    to.push_back({std::string("attention ") + to_string(type) + (count == 1 ? ", decode" : ", prefill"),
                  "query head and position", pairs, [=] {
                    const sequence_rows who{0, count, context - count, 0};
                    auto q = view_of(*rows, context), result = out->view;
                    q.rows = result.rows = std::size_t(count);
                    device->attention(result, q, heads, 0.125f, 0, *cache, 0, {{&who, 1}, *table});
                  }});
  }
  to.push_back({std::string("rotating Q and K, writing K and V in ") + to_string(type), "number of a row",
                double(chunk) * columns, [=] { write(chunk); }});
}

void add_norm(std::vector<counted_case>& to, const std::shared_ptr<backend>& device) {
  constexpr std::size_t rows = 4, cols = 1024;
  auto x = std::make_shared<std::vector<float>>(random_floats(rows * cols));
  auto out = std::make_shared<device_tensor>(*device, dtype::bf16, rows, cols);
  to.push_back({"rms norm to bf16", "number", double(rows * cols),
                [=] { device->rms_norm(out->view, view_of(*x, rows), x->data(), 1e-5f); }});
}

void add_recurrence(std::vector<counted_case>& to, const std::shared_ptr<backend>& device) {
  constexpr int heads = 4, dim = 64, rows = 16, channels = 3 * heads * dim;
  auto* ops = dynamic_cast<recurrent_ops*>(device.get());
  const state_shape shape{.layers = 1,
                          .slots = 1,
                          .running = 1,
                          .channels = channels,
                          .taps = 4,
                          .heads = heads,
                          .key_dim = dim,
                          .value_dim = dim};
  const std::shared_ptr<state_cache> states = ops->make_state_cache(shape);
  struct memory {
    std::vector<float> in = random_floats(rows * channels), convolved = in,
                       out = std::vector<float>(rows * heads * dim), rates = random_floats(rows * heads), betas = rates,
                       decay = std::vector<float>(heads, -1), bias = std::vector<float>(heads),
                       weight = random_floats(4 * channels), open = out;
    std::int32_t position = 0;
  };
  auto m = std::make_shared<memory>();
  for (auto& x : m->open)
    x = 0.5f;
  const auto step = [=](const std::function<void()>& op) {
    const sequence_rows who{0, rows, m->position, 0};
    const sequence_state slot{0, 0};
    states->begin({&who, 1}, {&slot, 1}, {});
    op();
    states->end();
    m->position += rows;
  };
  to.push_back({"recurrent convolution, 4 taps", "channel of a row", double(rows) * channels, [=] {
                  step([&] {
                    ops->convolve(view_of(m->convolved, rows), view_of(m->in, rows),
                                  {.weight = m->weight.data(), .bias = nullptr, .silu = true}, *states, 0);
                  });
                }});
  to.push_back({"recurrent delta rule, 64 keys", "value of a row", double(rows) * heads * dim, [=] {
                  step([&] {
                    const recurrence how{.type = recurrence_type::delta,
                                         .heads = heads,
                                         .key_heads = heads,
                                         .key_dim = dim,
                                         .value_dim = dim,
                                         .decay = m->decay.data(),
                                         .dt_bias = m->bias.data()};
                    ops->recur(view_of(m->out, rows), view_of(m->in, rows), view_of(m->rates, rows),
                               view_of(m->betas, rows), how, *states, 0);
                  });
                }});
  to.push_back({"recurrent gate with norm", "value of a row", double(rows) * heads * dim, [=] {
                  ops->gate(view_of(m->out, rows), view_of(m->open, rows), view_of(m->open, rows),
                            {.norm = gate_norm::before, .weight = m->weight.data(), .eps = 1e-5f, .group = dim});
                }});
}

void add_quantising(std::vector<counted_case>& to, isa set) {
  constexpr std::size_t groups = 64;
  auto from = std::make_shared<std::vector<float>>(random_floats(groups * 32));
  auto codes = std::make_shared<std::vector<std::uint32_t>>(groups * activation_record);
  const auto& kernels = find_target(set);
  to.push_back({"quantising activations", "group of 32", double(groups), [=, &kernels] {
                  kernels.quantise(weight_kind::q8, codes->data(), activation_record, from->data(), groups);
                }});
}

std::vector<counted_case> make_cases(isa set) {
  cpu_options options;
  options.threads = 1;
  options.target = set;
  options.cache = 1 << 20; // of the machine that counts, sizes of blocks would depend on it
  const std::shared_ptr<backend> device = make_cpu_backend(options);
  std::vector<counted_case> all{{"nothing", "call", 1, [] {}}};
  add_products(all, device, weight_format::f32, dtype::f32);
  for (const auto format : {weight_format::bf16, weight_format::q8_0, weight_format::q4_0, weight_format::q4_k})
    add_products(all, device, format, dtype::bf16);
  for (const auto type : {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8})
    add_attention(all, device, type);
  add_norm(all, device);
  add_recurrence(all, device);
  add_quantising(all, set);
  return all;
}

void print(const counted_case& c, const char* count) {
  std::printf("%s|%s|%.0f|%s\n", c.name.c_str(), c.unit.c_str(), c.units, count);
  std::fflush(stdout);
}

#if defined(__x86_64__)

long steps = 0;
greg_t last = 0;

/// Breakpoints, which are marks here, begin and end a count; then each instruction traps.
void count_trap(int, siginfo_t*, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  constexpr greg_t breakpoint = 3, trap_flag = 0x100;
  if (registers[REG_TRAPNO] == breakpoint)
    registers[REG_EFL] ^= trap_flag;
  else if (registers[REG_RIP] != last) // which repetitions of an instruction keep
    ++steps;
  last = registers[REG_RIP];
}

/// Instructions of one call. Repetitions of a string instruction count once.
long count(const counted_case& c) {
  struct sigaction action = {};
  action.sa_sigaction = count_trap;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, nullptr);
  steps = 0;
  asm volatile("int3" ::: "memory");
  c.call();
  asm volatile("int3" ::: "memory");
  return steps;
}

#endif

} // namespace

/// Arguments: the instruction set. A line for each case: its name, what it computes, how many of these, and on x86-64
/// the instructions.
int main(int argc, char** argv) {
  for (const isa set : available_isas())
    if (argc == 2 && to_string(set) == argv[1]) {
      const auto cases = make_cases(set);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        cases[i].call(); // what is allocated at first does not count
#if defined(__x86_64__)
        print(cases[i], std::to_string(count(cases[i])).c_str());
#else
        syscall(mark, i);
        cases[i].call();
        syscall(mark, i);
        print(cases[i], "");
#endif
      }
      return 0;
    }
  std::fprintf(stderr, "one argument: an instruction set of this machine\n");
  return 2;
}
