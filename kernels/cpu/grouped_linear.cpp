#include "kernels/cpu/grouped_linear.hpp"

#include "kernels/cpu/tensor_rows.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::kernels {

namespace {

const packed_matrix& packed(const row_group& group) { return dynamic_cast<const packed_matrix&>(*group.w); }

std::size_t count_rows(std::span<const row_group> groups) {
  std::size_t rows = 0;
  for (const auto& g : groups)
    rows += g.rows.size();
  return rows;
}

} // namespace

cpu_grouped_linear::cpu_grouped_linear(const target& kernels, thread_pool& pool, std::size_t cache)
  : kernels_(kernels), pool_(pool), cache_(cache_for_tasks(cache)), scratch_(pool.size()) {}

void cpu_grouped_linear::activated(const tensor& out, const tensor& in, std::span<const row_group> groups,
                                   const activation& act, bool gated) {
  expect(out.type == in.type && out.rows == count_rows(groups),
         "grouped_activated: out must be of the type of in, with the rows of all groups");
  for (std::size_t first_row = 0; !groups.empty();) {
    const auto count = plan(in, groups);
    rows_.clear();
    std::size_t all_panels = 0;
    for (std::size_t g = 0; g < count; ++g) {
      const auto& w = packed(groups[g]);
      expect(w.gated == gated && w.outputs == out.cols,
             "grouped_activated: the weights must be packed for it, with the columns of out");
      auto& op = products_[g].plan.op;
      op.act = act;
      op.out_bf16 = out.type == dtype::bf16;
      op.out = row_of(out, first_row);
      op.out_stride = out.stride;
      first_row += op.rows;
      all_panels += products_[g].plan.panels * products_[g].plan.row_tasks;
      for (std::size_t row = 0; row < op.rows; ++row)
        rows_.push_back({g, row, static_cast<std::size_t>(groups[g].rows[row])});
    }
    arrange(in);

    tasks_.clear();
    std::size_t sums = 0;
    for (std::size_t g = 0; g < count; ++g) {
      const auto& plan = products_[g].plan;
      const auto panels = fair_panels(all_panels, plan.max_panels);
      sums = std::max(sums, plan.sums(panels));
      for (std::size_t first = 0; first < plan.panels; first += panels)
        for (std::size_t row_task = 0; row_task < plan.row_tasks; ++row_task)
          tasks_.push_back({g, first, panels, row_task});
    }
    for (auto& memory : scratch_)
      memory.reserve(sums);
    pool_.parallel_for(tasks_.size(), [&](std::size_t i, int thread) {
      const auto& [g, first, panels, row_task] = tasks_[i];
      const auto& plan = products_[g].plan;
      kernels_.linear(plan.op, plan.task(first, panels, row_task), scratch_[thread].reserve(0));
    });
    groups = groups.subspan(count);
  }
}

void cpu_grouped_linear::sum(const tensor& to, const tensor& in, std::span<const row_group> groups, store how) {
  expect(to.type == dtype::f32 && in.rows == count_rows(groups),
         "grouped_sum: to must be f32, in must have the rows of all groups");
  if (groups.empty() && how == store::set)
    for_rows(pool_, to.rows, [&](std::size_t r) { std::fill_n(row_of<float>(to, r), to.cols, 0.0f); });
  for (std::size_t first_row = 0; !groups.empty(); how = store::add) {
    const auto count = plan(in, groups);
    rows_.clear();
    for (std::size_t g = 0; g < count; ++g) {
      const auto& w = packed(groups[g]);
      expect(!w.gated && w.outputs == to.cols && groups[g].factors.size() == groups[g].rows.size(),
             "grouped_sum: the weights must be packed by pack() for the columns of to, and each row needs a factor");
      auto& op = products_[g].plan.op;
      op.add = true;
      op.out_rows = groups[g].rows.data();
      op.factors = groups[g].factors.data();
      for (std::size_t row = 0; row < op.rows; ++row)
        rows_.push_back({g, row, first_row++});
    }
    arrange(in);

    const auto& shape = products_.front().plan;
    const std::size_t panel_bytes = packed(groups.front()).bytes / shape.panels;
    // Rows of several groups are summed side by side: in `to` they are far apart, so that caches would lose them
    // between two groups.
    const bool apart = rows_.size() > to.rows;
    const std::size_t row_bytes = to.rows * shape.panel_columns * sizeof(float);
    const auto most = outputs_per_linear_task / shape.panel_columns;
    const auto panels = fair_panels(shape.panels,
                                    apart ? std::clamp(cache_ / 4 / row_bytes, std::size_t(1), most) : most);
    std::size_t sums = 0;
    for (const auto& p : products_)
      sums = std::max(sums, p.plan.sums(panels));
    for (auto& memory : scratch_)
      memory.reserve(sums + (apart ? panels * row_bytes / sizeof(float) : 0));
    pool_.parallel_for(ceil_div(shape.panels, panels), [&](std::size_t i, int thread) {
      const std::size_t column = i * panels * shape.panel_columns;
      const std::size_t columns = std::min(panels * shape.panel_columns, to.cols - column);
      auto* own = scratch_[thread].reserve(0);
      auto out = tensor{row_of<float>(to, 0) + column, dtype::f32, to.rows, columns, to.stride};
      if (apart) {
        out.data = own + sums;
        out.stride = columns;
      }
      for (std::size_t r = 0; r < to.rows; ++r)
        if (how == store::set)
          std::fill_n(row_of<float>(out, r), columns, 0.0f);
        else if (apart)
          std::copy_n(row_of<float>(to, r) + column, columns, row_of<float>(out, r));
      for (const auto& p : products_) {
        auto op = p.plan.op;
        op.weights = static_cast<const char*>(op.weights) + i * panels * panel_bytes;
        op.bias = op.bias != nullptr ? op.bias + column : nullptr;
        op.outputs = columns;
        op.out = out.data;
        op.out_stride = out.stride;
        for (std::size_t row_task = 0; row_task < p.plan.row_tasks; ++row_task) {
          auto task = p.plan.task(i * panels, panels, row_task);
          task.first_panel = 0;
          kernels_.linear(op, task, own);
        }
      }
      for (std::size_t r = 0; apart && r < to.rows; ++r)
        std::copy_n(row_of<float>(out, r), columns, row_of<float>(to, r) + column);
    });
    groups = groups.subspan(count);
  }
}

std::size_t cpu_grouped_linear::plan(const tensor& in, std::span<const row_group> groups) {
  const auto& first = packed(groups.front());
  products_.clear();
  for (const auto& g : groups) {
    const auto& w = packed(g);
    expect(!g.rows.empty() && in.type == w.compute && in.cols == w.inputs,
           "grouped products: every group needs rows, of the type and columns that its weights were packed for");
    if (w.kind != first.kind || w.pruned != first.pruned || w.scale_words != first.scale_words)
      break;
    auto& plan = products_.emplace_back(product{plan_linear(kernels_, cache_, w, g.rows.size())}).plan;
    plan.op.bias = g.bias;
  }
  return products_.size();
}

void cpu_grouped_linear::reserve_activations() {
  std::size_t words = 0;
  for (const auto& p : products_)
    words += p.plan.op.activations == nullptr ? p.plan.activation_words() : 0;
  auto* next = activations_.reserve(words);
  for (auto& p : products_)
    if (p.plan.op.activations == nullptr) {
      p.plan.op.activations = p.activations = next;
      next += p.plan.activation_words();
    }
}

void cpu_grouped_linear::arrange(const tensor& in) {
  if (is_grouped(products_.front().plan.op.kind) && rows_.size() > in.rows)
    return arrange_shared(in);
  for (const auto& row : rows_)
    if (auto& op = products_[row.product].plan.op; used_in_place(op, in)) {
      op.activations = static_cast<const std::uint32_t*>(row_of(in, row.from));
      op.activation_block = k_block;
    }
  reserve_activations();
  for_rows(pool_, rows_.size(), [&](std::size_t i) {
    const auto& row = rows_[i];
    if (const auto& p = products_[row.product]; p.activations != nullptr)
      arrange_row(kernels_, p.plan.op, p.activations, row.row, in, row.from);
  });
}

void cpu_grouped_linear::arrange_shared(const tensor& in) {
  constexpr std::size_t block_words = group_block * activation_record;
  auto all = products_.front().plan; // all rows, each a tile of its own
  all.op.rows = all.op.row_tiles = in.rows;
  all.op.tile_rows = 1;
  all.op.activation_block = in.rows * block_words;
  auto* shared = shared_.reserve(all.activation_words());
  for_rows(pool_, in.rows, [&](std::size_t r) { arrange_row(kernels_, all.op, shared, r, in, r); });

  for (const auto& row : rows_)
    if (auto& op = products_[row.product].plan.op; op.rows == 1) {
      op.activations = shared + row.from * block_words;
      op.activation_block = all.op.activation_block;
    }
  reserve_activations();
  for_rows(pool_, rows_.size(), [&](std::size_t i) {
    const auto& row = rows_[i];
    const auto& p = products_[row.product];
    if (p.activations == nullptr)
      return;
    const auto& op = p.plan.op;
    const std::size_t stride = op.tile_rows * activation_record;
    const auto* from = shared + row.from * block_words;
    auto* to = p.activations + row.row / op.tile_rows * group_block * stride +
      row.row % op.tile_rows * activation_record;
    for (std::size_t first = 0; first < op.words; first += group_block) {
      for (std::size_t group = 0; group < std::min(group_block, op.words - first); ++group)
        std::memcpy(to + group * stride, from + group * activation_record, activation_record * sizeof *to);
      from += all.op.activation_block;
      to += op.activation_block;
    }
  });
}

std::size_t cpu_grouped_linear::fair_panels(std::size_t all, std::size_t most) const {
  return std::clamp(all / (4 * static_cast<std::size_t>(pool_.size())), std::size_t(1), most);
}

} // namespace troupe::kernels
