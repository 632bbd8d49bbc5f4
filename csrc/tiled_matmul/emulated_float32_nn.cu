#include "csrc/tiled_matmul/launch_emulated.cuh"

template cudaError_t pmpp::matmul::launch_emulated_layout<float, false, true>(const Plan&,
                                                                              const EmulatedArguments<float>&,
                                                                              cudaStream_t);
