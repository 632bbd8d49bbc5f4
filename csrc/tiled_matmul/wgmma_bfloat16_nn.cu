#include "csrc/tiled_matmul/launch_wgmma.cuh"

template cudaError_t pmpp::matmul::launch_wgmma_layout<pmpp::BFloat16, false, true>(const Plan&,
    const WgmmaArguments<BFloat16>&, cudaStream_t);
