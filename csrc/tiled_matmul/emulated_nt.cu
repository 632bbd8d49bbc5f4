#include "csrc/tiled_matmul/launch_emulated.cuh"

template cudaError_t pmpp::matmul::launch_emulated_layout<false, false>(const Plan&, const EmulatedArguments&,
                                                                        cudaStream_t);
