#include "runtime/import/gguf/gguf_tensors.hpp"

#include "runtime/checkpoint/quantised/quantise_blocks.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/gguf/gguf_names.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

namespace fs = std::filesystem;

/// The conversion of one tensor.
struct exported {
  laid_out_tensor layout;
  tensor_type type;
};

class exporter {
public:
  exporter(const model_source& source, const export_format& format, std::vector<laid_out_tensor> layout,
           kernels::thread_pool& pool, const export_options& options)
    : source_(source), format_(format), layout_(std::move(layout)), pool_(pool), options_(options) {}

  export_result write(gguf_writer& file, const fs::path& path, const std::vector<further_tensor>& further,
                      const progress_fn& progress) {
    for (auto& layout : layout_)
      add(file, std::move(layout));
    for (const auto& tensor : further)
      file.add_tensor(tensor.name, tensor_type::f32, tensor.shape);
    std::size_t done = 0;
    file.write(path, [&](std::size_t index) {
      if (index >= tensors_.size())
        return std::as_bytes(std::span(further[index - tensors_.size()].values));
      written_.clear();
      const auto& tensor = tensors_[index];
      for (std::size_t part = 0; part < tensor.layout.parts.size(); ++part) {
        append(tensor, part);
        done += source_.tensors->find(tensor.layout.parts[part].name)->bytes;
      }
      if (progress)
        progress(done, result_.stored_bytes);
      return std::as_bytes(std::span(written_));
    });
    result_.written_bytes = file.tensor_bytes();
    result_.relative_error = squares_ > 0 ? std::sqrt(errors_ / squares_) : 0;
    return result_;
  }

private:
  void add(gguf_writer& file, laid_out_tensor layout) {
    // Parts of one tensor have one type: the one that fits all of them.
    auto type = written_type(layout.parts.front().name, *source_.tensors->find(layout.parts.front().name), format_,
                             source_.config, {options_.pure, options_.importance != nullptr});
    if (layout.shape.size() == 1)
      type = tensor_type::f32;
    for (const auto& part : layout.parts)
      result_.stored_bytes += source_.tensors->find(part.name)->bytes;
    file.add_tensor(layout.name, type, layout.shape);
    if (layout.shape.size() > 1) {
      std::size_t rows = 1;
      for (std::size_t i = 0; i + 1 < layout.shape.size(); ++i)
        rows *= layout.shape[i];
      result_.weights += rows * layout.shape.back();
      result_.matrix_bytes += rows * row_bytes(*weight_format_of(type), layout.shape.back());
    }
    tensors_.push_back({std::move(layout), type});
  }

  /// Converts a part behind what is `written_`.
  void append(const exported& tensor, std::size_t index) {
    const auto& part = tensor.layout.parts[index];
    const auto& info = *source_.tensors->find(part.name);
    const auto data = source_.tensors->read(part.name);
    const auto from = *weight_format_of(info.type), to = *weight_format_of(tensor.type);
    // Elements of a vector are rows of their own where they change places.
    const bool vector = info.shape.size() == 1;
    const auto cols = vector && part.rows ? 1 : info.shape.back();
    const auto rows = part.rows ? part.rows->size() : vector ? info.shape.front() / cols : info.shape.front();
    const bool changed = part.columns || part.factor != 1 || part.offset != 0 || part.negated_exponential;
    if (changed && has_blocks(info.type))
      throw failure(errc::unsupported,
                    source_.tensors->where(part.name) + ": tensor " + shown(part.name) + " is stored as " +
                      std::string(to_string(info.type)) + ", which GGUF has in another order; take the original");
    const auto stored_row = row_bytes(from, cols), written_row = row_bytes(to, cols);
    const auto begin = written_.size();
    written_.resize(begin + rows * written_row);
    std::vector<double> squares(rows), errors(rows);
    const float* importance = vector ? nullptr : importance_of(options_, tensor.layout, index);
    const bool blocks = has_blocks(tensor.type) && from != to;
    const auto feedback = blocks && options_.feedback ? options_.feedback(part.name) : nullptr;
    const auto stored = [&](std::size_t row) {
      return static_cast<const char*>(data.get()) + (part.rows ? part.rows->at(row) : row) * stored_row;
    };
    pool_.parallel_for((rows + feedback_rows - 1) / feedback_rows, [&](std::size_t task, int) {
      const auto first = task * feedback_rows, count = std::min(feedback_rows, rows - first);
      char* place = written_.data() + begin + first * written_row;
      if (from == to && !changed) {
        for (std::size_t r = 0; r < count; ++r)
          std::copy_n(stored(first + r), stored_row, place + r * written_row);
        return;
      }
      std::vector<float> values(count * cols), back(cols);
      for (std::size_t r = 0; r < count; ++r)
        to_floats(from, stored(first + r), cols, &values[r * cols]);
      if (changed)
        for (std::size_t r = 0; r < count; ++r)
          change(part, std::span(&values[r * cols], cols), back);
      if (feedback) {
        auto used_up = values;
        quantise_with_feedback(to, used_up, *feedback, place);
      }
      for (std::size_t r = 0; r < count; ++r) {
        if (!feedback)
          quantise_row(to, &values[r * cols], cols, place + r * written_row, importance);
        to_floats(to, place + r * written_row, cols, back.data());
        for (std::size_t i = 0; i < cols; ++i) {
          const double value = values[r * cols + i];
          squares[first + r] += value * value;
          errors[first + r] += (back[i] - value) * (back[i] - value);
        }
      }
    });
    for (std::size_t row = 0; row < rows && !vector; ++row) {
      squares_ += squares[row];
      errors_ += errors[row];
    }
  }

  static void change(const laid_out_tensor::part& part, std::span<float> row, std::vector<float>& room) {
    if (part.columns) {
      room.assign(row.begin(), row.end());
      for (std::size_t i = 0; i < row.size(); ++i)
        row[i] = room[part.columns->at(i)];
    }
    for (float& value : row)
      value = part.negated_exponential ? -std::exp(value) : value * part.factor + part.offset;
  }

  const model_source& source_;
  const export_format& format_;
  std::vector<laid_out_tensor> layout_;
  kernels::thread_pool& pool_;
  const export_options& options_;
  std::vector<exported> tensors_;
  std::vector<char> written_; // one tensor's
  export_result result_;
  double squares_ = 0, errors_ = 0;
};

} // namespace

const float* importance_of(const export_options& options, const laid_out_tensor& tensor, std::size_t part) {
  const auto* found = options.importance ? options.importance->find(tensor.name) : nullptr;
  if (!found && options.importance) // as other forms of the model call it
    found = options.importance->find(gguf_tensor_name(tensor.parts[part].name));
  if (!found || tensor.shape.size() == 1)
    return nullptr;
  const auto inputs = tensor.shape.back(), values = found->mean_squares.size();
  if (values == inputs)
    return found->mean_squares.data();
  if (values == inputs * tensor.parts.size())
    return found->mean_squares.data() + part * inputs;
  throw failure(errc::bad_request,
                "the importance matrix is of another model: it has " + std::to_string(values) + " values for " +
                  shown(tensor.name) + ", whose rows have " + std::to_string(inputs) + " weights");
}

export_result write_gguf_tensors(const model_source& source, const export_format& format,
                                 std::vector<laid_out_tensor> layout, const std::vector<further_tensor>& further,
                                 gguf_writer& file, const fs::path& path, kernels::thread_pool& pool,
                                 const export_options& options, const progress_fn& progress) {
  return exporter(source, format, std::move(layout), pool, options).write(file, path, further, progress);
}

} // namespace troupe
