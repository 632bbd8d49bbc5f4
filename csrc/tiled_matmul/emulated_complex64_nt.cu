#include "csrc/tiled_matmul/launch_emulated.cuh"

template cudaError_t pmpp::matmul::launch_emulated_layout<pmpp::Complex<float>, false, false>(
    const Plan&, const EmulatedArguments<pmpp::Complex<float>>&, cudaStream_t);
