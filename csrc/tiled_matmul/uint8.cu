#include "csrc/tiled_matmul/instantiate.cuh"

template cudaError_t pmpp::matmul::launch_typed<std::uint8_t>(const Plan&, const Problem&, cudaStream_t);
