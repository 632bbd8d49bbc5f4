#include "csrc/tiled_matmul/mma64_instantiate.cuh"

template cudaError_t pmpp::matmul::launch_mma64_typed<pmpp::Complex<double>>(const Plan&, const Problem&, void*,
                                                                             cudaStream_t);
