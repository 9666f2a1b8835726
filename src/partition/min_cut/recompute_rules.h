#pragma once

#include "partition/min_cut/cut_graph.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem::partition {

/// Whether a kernel that makes `producer` can go on with `user`: then the value between them need
/// not exist in memory.
bool can_fuse(const CutGraph& graph, Item producer, Item user);

/// Whether the value exists in memory whatever is saved: an input, an output, or read by something
/// that cannot share its kernel.
bool is_materialised(const CutGraph& graph, Item item);

/// By item: how many readers lie between it and the backward, kFarFromBackward if the backward does
/// not come after it. 0 for what the forward does not need.
std::vector<int32_t> distance_from_backward(const CutGraph& graph);
inline constexpr int32_t kFarFromBackward = 1'000'000'000;

/// The reason for everything but views where nothing is fused.
inline constexpr std::string_view kNothingIsFused = "the backend fuses nothing";

/// By item: why the backward may not compute it again; empty if it may. Only of what the forward
/// needs. Views always may: they compute nothing.
std::vector<std::string_view> bans(const CutGraph& graph);

}  // namespace tandem::partition
