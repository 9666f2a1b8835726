#pragma once

#include "ops/metadata/metadata.h"
#include "tandem/ir/graph.h"
#include "tracing/recording/data_sizes.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <memory>
#include <vector>

namespace tandem::tracing {

class Recording;

/// Stands for a tensor while the user's function is traced: metadata and a graph value, no data.
///
/// Its key set holds the recording key and the key of the device it pretends to be on, so that
/// libtorch takes the same decisions (dropout kernel, attention backend, autocast) as it would on
/// the real tensor.
class TracedTensor : public c10::TensorImpl {
 public:
  TracedTensor(Recording& recording, ir::ValueId value, const ops::TensorMeta& meta);

  const ops::TensorMeta& meta() const { return meta_; }
  ir::ValueId value() const { return value_; }
  /// Identifies the recording it belongs to; a tensor that outlives its trace is recognised by it.
  uint64_t recording_id() const { return recording_id_; }

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(
      const c10::VariableVersion& version_counter, bool allow_change) const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(
      c10::VariableVersion&& version_counter, bool allow_change) const override;

 protected:
  // Where sizes may depend on data: whoever asks for them is noted, and the user's code gets
  // symbolic integers if it asks for such.
  c10::IntArrayRef sizes_custom() const override;
  c10::IntArrayRef strides_custom() const override;
  int64_t numel_custom() const override;
  c10::SymIntArrayRef sym_sizes_custom() const override;
  c10::SymInt sym_size_custom(int64_t dim) const override;
  c10::SymIntArrayRef sym_strides_custom() const override;
  c10::SymInt sym_numel_custom() const override;

 private:
  TracedTensor(uint64_t recording_id, ir::ValueId value, const ops::TensorMeta& meta,
               std::shared_ptr<DataSizes> data_sizes);
  template <class Version>
  c10::intrusive_ptr<c10::TensorImpl> copy(Version&& version_counter, bool allow_change) const;

  ops::TensorMeta meta_;
  ir::ValueId value_;
  uint64_t recording_id_;
  const std::shared_ptr<DataSizes> data_sizes_;  // null: no size depends on data so far
  mutable std::vector<c10::SymInt> sizes_for_user_, strides_for_user_;
};

/// The traced tensor itself; null for real, undefined and functional tensors.
TracedTensor* as_traced(const at::Tensor& tensor);
/// Traced, whether or not a functional wrapper is around it.
bool is_traced(const at::Tensor& tensor);

/// The value that a traced tensor or a functional wrapper around one stands for now, pending writes
/// applied.
ir::ValueId current_value(const at::Tensor& tensor);

}  // namespace tandem::tracing
