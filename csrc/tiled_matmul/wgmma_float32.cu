#include "csrc/tiled_matmul/launch_wgmma.cuh"

template cudaError_t pmpp::matmul::launch_wgmma_layout<float, false, false>(const Plan&, const WgmmaArguments<float>&,
                                                                            cudaStream_t);
template cudaError_t pmpp::matmul::launch_wgmma_layout<float, true, false>(const Plan&, const WgmmaArguments<float>&,
                                                                           cudaStream_t);
