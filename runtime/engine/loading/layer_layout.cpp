#include "runtime/engine/loading/layer_layout.hpp"

#include "runtime/engine/loading/replica_roles.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace troupe {

namespace {

constexpr const char* automatic = "auto";

bool names_gpu(const std::string& device) { return device.starts_with("cuda:"); }

failure wrong_layers(const std::string& why) { return failure(errc::bad_request, "`layers` " + why, "layers"); }

std::string layers_named(int first, int end) {
  return first + 1 == end ? "layer " + std::to_string(first)
                          : "layers " + std::to_string(first) + " to " + std::to_string(end - 1);
}

std::optional<int> layer_number(std::string_view text) {
  constexpr int most = 1'000'000;
  int value = -1;
  const auto* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  return problem == std::errc() && stop == end && value >= 0 && value < most ? std::optional(value) : std::nullopt;
}

/// "cpu=0-15" or "cpu=3".
placed_layers parse_part(std::string_view part) {
  const auto refuse = [&] {
    return wrong_layers("must be DEVICE=FIRST-LAST for each stage, as in cpu=0-15,cpu=16-31, or auto, not `" +
                        std::string(part) + "`");
  };
  const auto equals = part.rfind('=');
  if (equals == part.npos || equals == 0)
    throw refuse();
  const auto range = part.substr(equals + 1);
  const auto dash = range.find('-');
  const auto first = layer_number(range.substr(0, dash)),
             last = dash == range.npos ? first : layer_number(range.substr(dash + 1));
  if (!first || !last || *first > *last)
    throw refuse();
  return {std::string(part.substr(0, equals)), {*first, *last + 1}};
}

std::vector<placed_layers> parse_layers(const std::string& text) {
  std::vector<placed_layers> stages;
  for (std::string_view rest = text;;) {
    const auto comma = rest.find(',');
    stages.push_back(parse_part(rest.substr(0, comma)));
    if (comma == rest.npos)
      break;
    rest.remove_prefix(comma + 1);
  }
  std::ranges::sort(stages, {}, [](const placed_layers& s) { return s.span.first; });
  return stages;
}

/// Layers are there once each, and GPUs come first.
void check_places(const std::vector<placed_layers>& stages, int layers) {
  int next = 0;
  for (const auto& [device, span] : stages) {
    if (span.end > layers)
      throw wrong_layers("names " + layers_named(span.first, span.end) + ", but the model has only " +
                         layers_named(0, layers));
    if (span.first < next)
      throw wrong_layers("has " + layers_named(span.first, std::min(next, span.end)) + " twice");
    if (span.first > next)
      throw wrong_layers("leaves out " + layers_named(next, span.first));
    next = span.end;
  }
  if (next < layers)
    throw wrong_layers("leaves out " + layers_named(next, layers));
  for (std::size_t i = 1; i < stages.size(); ++i)
    if (names_gpu(stages[i].device) && !names_gpu(stages[i - 1].device))
      throw wrong_layers("must have those on a GPU first, not behind " + stages[i - 1].device);
}

void mark_ends(std::vector<placed_layers>& stages) {
  for (auto& stage : stages)
    stage.span.embeds = stage.span.heads = false;
  stages.front().span.embeds = stages.back().span.heads = true;
}

} // namespace

void check_layers(const engine_options& options) {
  if (options.stages < 1)
    refuse_field("stages", "must be at least 1, not " + std::to_string(options.stages));
  if (options.microbatches < 0)
    refuse_field("microbatches", "must be at least 0, not " + std::to_string(options.microbatches));
  if (options.layers.empty())
    return;
  const bool decided = wants_automatic_layers(options);
  const auto stages = decided ? 0 : parse_layers(options.layers).size();
  if (options.stages > 1 && (decided || static_cast<std::size_t>(options.stages) != stages))
    refuse_field("stages",
                 "must be left out, as `layers` says how many there are, not " + std::to_string(options.stages));
}

std::vector<std::string> devices_of_replicas(const engine_options& options) {
  std::vector<std::string> names;
  std::string_view rest = options.compute.device;
  if (rest.find(',') == rest.npos)
    return names;
  for (std::size_t comma = 0; comma != rest.npos; rest.remove_prefix(comma == rest.npos ? 0 : comma + 1)) {
    comma = rest.find(',');
    const std::string name(rest.substr(0, comma));
    if (!names_gpu(name))
      refuse_field("device", "names several only for replicas on NVIDIA GPUs, as in cuda:0,cuda:1, not `" + name + "`");
    if (std::ranges::find(names, name) != names.end())
      refuse_field("device", "names " + name + " twice");
    names.push_back(name);
  }
  if (static_cast<int>(names.size()) != replica_count(options))
    refuse_field("device",
                 "names " + std::to_string(names.size()) + " GPUs, but there are " +
                   std::to_string(replica_count(options)) + " replicas, of which each needs one");
  if (options.stages > 1 || !options.layers.empty() || options.compute.tensor_parallel > 1)
    refuse_field("device",
                 "names a GPU for each replica, so it cannot be combined with `stages`, `layers` or `tensor_parallel`",
                 errc::unsupported);
  return names;
}

bool wants_automatic_layers(const engine_options& options) { return options.layers == automatic; }

std::vector<std::string> devices_of(const engine_options& options) {
  if (options.layers.empty() || wants_automatic_layers(options))
    return {options.compute.device};
  std::vector<std::string> names;
  for (const auto& stage : parse_layers(options.layers))
    names.push_back(stage.device);
  return names;
}

std::vector<placed_layers> place_layers(const engine_options& options, int layers) {
  std::vector<placed_layers> stages;
  if (options.layers.empty()) {
    if (options.stages > layers)
      refuse_field("stages",
                   "must be at most " + std::to_string(layers) + ", the model's layers, not " +
                     std::to_string(options.stages));
    for (int i = 0, first = 0; i < options.stages; ++i) { // the last one has the head, too, so it gets no more
      const int end = first + layers / options.stages + (i < layers % options.stages ? 1 : 0);
      stages.push_back({options.compute.device, {first, end}});
      first = end;
    }
  } else {
    stages = parse_layers(options.layers);
    check_places(stages, layers);
  }
  mark_ends(stages);
  return stages;
}

std::vector<placed_layers> place_what_fits(const std::string& gpu, int layers,
                                           const std::function<bool(const layer_span&)>& fit) {
  int there = layers;
  while (there > 0 && !fit({0, there, true, there == layers}))
    --there;
  std::vector<placed_layers> stages;
  if (there > 0)
    stages.push_back({gpu, {0, there}});
  if (there < layers)
    stages.push_back({"cpu", {there, layers}});
  mark_ends(stages);
  return stages;
}

} // namespace troupe
