#include "csrc/tiled_matmul/instantiate.cuh"

template cudaError_t pmpp::matmul::launch_typed<double>(const Plan&, const Problem&, cudaStream_t);
