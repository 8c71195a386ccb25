// How a model's layers are divided among the stages of a pipeline, and where each computes: what users write in
// `stages` and `layers`, checked against the model. Decides nothing about memory but what `auto` asks for.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/model/layer_span.hpp"

#include <functional>
#include <string>
#include <vector>

namespace troupe {

/// Layers, and the name of the device that computes them.
struct placed_layers {
  std::string device;
  layer_span span;

  bool operator==(const placed_layers&) const = default;
};

/// What can be said without a model. Throws failure(bad_request) naming `stages`, `layers` or `microbatches`.
void check_layers(const engine_options& options);

/// The devices of replicas that each have one, and the whole model on it, in their order; empty: replicas share theirs.
/// Throws failure(bad_request | unsupported), naming `device`, unless they are as many GPUs as there are replicas.
std::vector<std::string> devices_of_replicas(const engine_options& options);

/// Whether options ask for `layers` to be as many on a GPU as fit.
bool wants_automatic_layers(const engine_options& options);

/// The devices that options name, in the order of the layers there; that of the first ones for automatic layers.
std::vector<std::string> devices_of(const engine_options& options);

/// The stages of a model with so many layers, in order. Throws failure(bad_request), naming `stages` or `layers`, if
/// layers are missing, there twice or not the model's, or if GPUs come behind CPUs. Not for automatic ones.
std::vector<placed_layers> place_layers(const engine_options& options, int layers);

/// Automatic ones: the most first layers that `fit` on `gpu`, the others on a CPU; one stage if all fit, or none does.
std::vector<placed_layers> place_what_fits(const std::string& gpu, int layers,
                                           const std::function<bool(const layer_span&)>& fit);

} // namespace troupe
