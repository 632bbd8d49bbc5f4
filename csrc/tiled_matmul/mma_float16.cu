#include "csrc/tiled_matmul/mma_instantiate.cuh"

template cudaError_t pmpp::matmul::launch_mma_typed<pmpp::Float16>(const Plan&, const Problem&, float*, cudaStream_t);
