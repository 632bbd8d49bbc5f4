#include "csrc/tiled_matmul/simt_ordered.cuh"

template cudaError_t pmpp::matmul::launch_simt_ordered<pmpp::matmul::SimtOrder::kPieces>(int,
                                                                                         const SimtArguments<float>&,
                                                                                         SimtOrder, unsigned,
                                                                                         cudaStream_t);
