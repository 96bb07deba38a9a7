// The CUDA side of Experts (moe.h): storage, packing, scratch.
#pragma once

#include "engine/kernels/experts.cuh"

namespace hayfork::engine::cuda {

class ExpertsOnDevice : public Experts {
 public:
  ExpertsOnDevice(CudaContext& context, const ExpertShape& s);

  void set(Context& context, Part part, int64_t e, std::span<const LinearPart> rows,
           std::span<const float> bias) override;
  void set_mxfp4(Context& context, Part part, int64_t e, Mxfp4Rows rows, std::span<const float> bias) override;
  int64_t scratch_bytes(int64_t n_rows, int32_t top_k) const override;
  std::vector<int64_t> load(Context& context) const override;

  const ExpertMatrix& matrix(Part part) const { return parts_[static_cast<size_t>(part)].matrix; }
  DType type() const { return type_; }
  // Rows given to each expert, counted by the kernels that sort.
  unsigned long long* counters() const { return static_cast<unsigned long long*>(counters_->data()); }

 private:
  struct Stored {
    ExpertMatrix matrix;
    std::unique_ptr<Buffer> weights, bias, scale;
  };
  void upload_bias(Context& context, Stored& stored, int64_t e, std::span<const float> bias);
  void* staged(Context& context, size_t bytes);
  void set_done();

  DType type_;
  Stored parts_[2];
  std::unique_ptr<Buffer> counters_;
  std::unique_ptr<Buffer> staging_;  // rows on their way into their packed order; gone once all are set
  int64_t n_set_ = 0;
};

// What run_experts keeps in its scratch, and where. Sizes for the worst case of any split into kinds.
struct ExpertScratch {
  SortedRows sorted;
  void* x = nullptr;     // rows as the first product reads them; may share memory with out
  void* gate = nullptr;  // activated, [pairs, …]
  void* out = nullptr;   // [pairs, …]
  int64_t bytes = 0;
  int64_t max_entries = 0;
};
ExpertScratch carve_expert_scratch(const ExpertShape& shape, DType type, void* memory, int64_t n_rows, int32_t top_k);

}  // namespace hayfork::engine::cuda
