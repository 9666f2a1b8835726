#include "fuzz/op.h"
#include "fuzz/patterns.h"

#define OP TANDEM_FUZZ_OP

namespace tandem::fuzz {

/// Views, copies and rearrangements, indices, and tensors from nothing.
std::vector<Op> shape_ops() {
  using namespace patterns;
  return {
      // ---- views ----
      OP("view", other_sizes, kView, x.view(s)),
      OP("view_as", same_sizes, kView, x.view_as(y)),
      OP("select", anything_dim, kView, x.select(i, k)),
      OP("slice", range, kView, x.slice(i, j, k)),
      OP("slice.step", range, kView, x.slice(i, j, k, 2)),
      OP("narrow", range, kView, x.narrow(i, j, k - j)),
      OP("index.at", anything_dim, kView,
         x.index({at::indexing::Ellipsis, at::indexing::Slice(), at::indexing::None})),
      OP("t", matrix, kView, x.t()),
      OP("transpose", anything_dims, kView, x.transpose(i, j)),
      OP("permute", permutation, kView, x.permute(s)),
      OP("movedim", anything_dims, kView, x.movedim(i, j)),
      OP("diagonal", anything_dims, kView, x.diagonal(0, i, j)),
      OP("expand", wider_sizes, kView, x.expand(s)),
      OP("expand_as", floating_pair, kView, x.expand_as(x + y)),
      OP("unsqueeze", anything_dim, kView, x.unsqueeze(i)),
      OP("squeeze", anything, kView, x.squeeze()),
      OP("squeeze.dim", anything_dim, kView, x.squeeze(i)),
      OP("flatten", anything, kView, x.flatten()),
      OP("unflatten", other_sizes, kView, x.flatten().unflatten(0, s)),
      OP("reshape", other_sizes, kView, x.reshape(s)),
      OP("split", anything_dim, kView, x.split(1, i)),
      OP("split_with_sizes", range, kView, x.split_with_sizes({j, k - j, x.size(i) - k}, i)),
      OP("chunk", anything_dim, kView, x.chunk(2, i)),
      OP("tensor_split", anything_dim, kView, x.tensor_split(2, i)),
      OP("unbind", anything_dim, kView, x.unbind(i)),
      OP("unfold", anything_dim, kView, x.unfold(i, 1, 1)),
      OP("as_strided", strided, kView, x.as_strided(s, {i, j}, k)),
      OP("detach", anything, kView, x.detach()),
      OP("data", anything, kView, x.data()),
      OP("alias", anything, kView, at::alias(x)),
      OP("view_as_complex", pairs, kView, at::view_as_complex(x)),
      OP("view_as_real", complex, kView, at::view_as_real(x)),
      OP("conj", complex, kView, x.conj()),
      OP("real", complex, kView, at::real(x)),
      OP("imag", complex, kView, at::imag(x)),
      OP("swapaxes", anything_dims, kView, x.swapaxes(i, j)),
      OP("broadcast_tensors", floating_pair, kView, at::broadcast_tensors({x, y})),
      OP("atleast_2d", anything, kView, at::atleast_2d(x)),

      // ---- copies ----
      OP("cat", list, kPlain, at::cat(xs, i)),
      OP("stack", list, kPlain, at::stack(xs, i)),
      OP("hstack", list, kPlain, at::hstack(xs)),
      OP("repeat", floating_dim, kPlain, x.repeat_interleave(2, i)),
      OP("tile", floating, kPlain, x.tile({2})),
      OP("flip", floating_dim, kPlain, x.flip(i)),
      OP("roll", floating_dim, kPlain, x.roll(1, i)),
      OP("rot90", floating_dims, kPlain, x.rot90(1, {i, j})),
      OP("tril", matrix, kPlain, x.tril()),
      OP("triu", matrix, kPlain, x.triu(1)),
      OP("diag_embed", floating, kPlain, x.flatten().slice(0, 0, 3).diag_embed()),
      OP("constant_pad", floating_dim, kPlain, at::constant_pad_nd(x, {1, 0}, c)),
      OP("meshgrid", vectors, kPlain, at::meshgrid({x, y}, "ij")),
      OP("cartesian", vectors, kPlain, at::cartesian_prod({x, y})),
      OP("resolve_conj", complex, kPlain, x.resolve_conj()),

      // ---- indices ----
      OP("index_select", index_dim, kPlain, x.index_select(i, y)),
      OP("index", index_source, kOtherFormula, x.index({y})),
      OP("gather", index_like, kPlain, x.gather(i, y)),
      OP("take_along_dim", index_like, kPlain, x.take_along_dim(y, i)),
      OP("take", index_rows, kPlain, x.take(y)),
      OP("embedding", index_rows, kPlain, at::embedding(x, y)),
      OP("index_add", index_source, kRounds, x.index_add(0, y, z)),
      OP("scatter_add", index_like, kRounds, x.scatter_add(i, y, z)),
      OP("select_scatter", floating_dim, kPlain, x.select_scatter(x.select(i, k) * c, i, k)),
      OP("slice_scatter", floating_dim, kPlain,
         x.slice_scatter(x.narrow(i, k, 1) * c, i, k, k + 1)),
      OP("diagonal_scatter", floating_dims, kPlain,
         x.diagonal_scatter(x.diagonal(0, i, j) * c, 0, i, j)),

      // ---- from nothing ----
      OP("zeros", sizes_only, kNoGradient, at::zeros(s, at::TensorOptions(t))),
      OP("ones", sizes_only, kNoGradient, at::ones(s, at::TensorOptions(t))),
      OP("full", sizes_only, kNoGradient, at::full(s, c, at::TensorOptions(t))),
      OP("arange", sizes_only, kNoGradient, at::arange(4, at::TensorOptions(t))),
      OP("linspace", sizes_only, kNoGradient, at::linspace(-1, 1, 5, at::TensorOptions(t))),
      OP("eye", sizes_only, kNoGradient, at::eye(2, at::TensorOptions(t))),
      OP("empty_filled", sizes_only, kNoGradient, at::empty(s, at::TensorOptions(t)).fill_(c)),
      OP("tensor", sizes_only, kNoGradient, torch::tensor({c, d}, at::TensorOptions(t))),
      OP("scalar_tensor", sizes_only, kNoGradient, at::scalar_tensor(c, at::TensorOptions(t))),
      OP("tril_indices", sizes_only, kNoGradient, at::tril_indices(i + 1, 2)),

      // ---- what other statements need ----
      OP("refit", nullptr, kPlain, x.reshape({-1}).repeat({j}).slice(0, 0, i).view(s)),
      OP("ramp", nullptr, kNoGradient, at::arange(1, i + 1, at::TensorOptions(t)).div(i).view(s)),
      OP("indices", nullptr, kNoGradient, at::arange(i).mul(j).remainder(k).view(s)),
      OP("mask", nullptr, kNoGradient, at::arange(i).mul(j).remainder(3).gt(0).view(s)),
      OP("row_numbers", nullptr, kNoGradient, at::arange(i, j)),
  };
}

}  // namespace tandem::fuzz
