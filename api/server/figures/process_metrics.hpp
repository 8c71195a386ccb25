// The metrics of the process that Prometheus' client libraries report, under their names. Any thread.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace troupe {

/// process_cpu_seconds_total, process_resident_memory_bytes, ...; without those that the system does not tell.
std::vector<prometheus::MetricFamily> process_families();

} // namespace troupe
