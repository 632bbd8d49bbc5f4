#include "csrc/tiled_matmul/instantiate.cuh"

template cudaError_t pmpp::matmul::launch_typed<pmpp::Complex<float>>(const Plan&, const Problem&, cudaStream_t);
