#pragma once

#include <ATen/Parallel.h>

namespace tandem::test {

/// Tiny kernels on several threads spend their time waiting for each other, on a busy machine most
/// of all.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace tandem::test
