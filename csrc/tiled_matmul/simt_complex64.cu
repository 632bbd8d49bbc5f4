#include "csrc/tiled_matmul/simt_instantiate.cuh"

template cudaError_t pmpp::matmul::launch_simt_typed<pmpp::Complex<float>>(const Plan&, const Problem&, void*,
                                                                           cudaStream_t);
