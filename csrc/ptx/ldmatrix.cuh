// Matrices of 8 x 8 16-bit elements from shared memory to the fragments of a warp (PTX ISA, "ldmatrix"), sm_75 and
// later. cuda::ptx has none of them.
#pragma once

#include <cstdint>

namespace pmpp::ptx {

// ldmatrix.sync.aligned.m8n8.x4: lane 8 * i + r gives the address of row r of matrix i, a multiple of 16. Afterwards
// lane l holds of each matrix the elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&matrix)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(row)
               : "memory");
}

// The same with .trans: lane l holds the elements of column l / 4 in the rows 2 * (l % 4) and 2 * (l % 4) + 1.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&matrix)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(row)
               : "memory");
}

}  // namespace pmpp::ptx
