// Multiplies one small pair of matrices with csrc/tiled_matmul/tile_product.cuh and says what came of it, in a process
// of its own: a copy of that header with a check removed goes first on the include path (test_mutations.py).
//
// Exit codes: 0 right, 1 wrong numbers, 2 written outside d. Reading outside a or b ends the process: both end where
// memory that may be read ends. Compiled as C++ the kernel runs on the CPU, a thread for each of CUDA's; compiled by
// nvcc it runs on the GPU, which then reports an illegal address (exit code 3).
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#ifdef __CUDACC__
#include <cuda.h>
#include <cuda_runtime.h>
#else
#include <sys/mman.h>
#include <unistd.h>

#include <barrier>
#include <thread>

// The words of CUDA that the kernel's body uses.
#define __device__
#define __forceinline__ inline
#define __shared__
struct Index3 {
  unsigned x, y, z;
};
static thread_local Index3 threadIdx, blockIdx;
static Index3 gridDim;
static thread_local std::barrier<>* block_barrier;
static void __syncthreads() { block_barrier->arrive_and_wait(); }
#endif

#include "csrc/tiled_matmul/tile_product.cuh"

namespace {

using pmpp::matmul::Arguments;

// No size is a multiple of the tile, so that every edge of every operand has a part of a tile beyond it.
constexpr int kWidth = 4;
constexpr std::int64_t kM = 6, kN = 7, kK = 5;
// Both operands lie with k contiguous, and more of it than is used: what lies beyond k is NaN, which must never count.
// Beyond the last row of a, and the last column of b, there is nothing that may be read.
constexpr std::int64_t kPitch = 9;
// d lies in the middle of a larger matrix whose other elements must stay as they are.
constexpr std::int64_t kMargin = 8, kPitchD = kN + 2 * kMargin;
constexpr float kUntouched = 12345.0f;

constexpr std::size_t kBytesA = kM * kPitch * sizeof(float);
constexpr std::size_t kBytesB = kN * kPitch * sizeof(float);
constexpr std::size_t kElementsD = (kM + 2 * kMargin) * kPitchD;

float value_a(std::int64_t row, std::int64_t k) { return static_cast<float>(row * 3 + k - 4); }
float value_b(std::int64_t k, std::int64_t col) { return static_cast<float>(k * 2 - col + 1); }

[[noreturn]] void fail(const char* what, int code) {
  std::fprintf(stderr, "harness: %s (%d)\n", what, code);
  std::exit(10);
}

#ifdef __CUDACC__

void check(cudaError_t error, const char* what) {
  if (error == cudaErrorIllegalAddress) std::exit(3);
  if (error != cudaSuccess) fail(what, static_cast<int>(error));
}

// A function of the driver, so that its library need not be linked.
template <class Function>
Function driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  check(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result), name);
  if (result != cudaDriverEntryPointSuccess) fail(name, static_cast<int>(result));
  return reinterpret_cast<Function>(found);
}

void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) fail(what, static_cast<int>(result));
}

// `bytes` of GPU memory that end where the mapped memory ends: twice as many addresses are reserved as are mapped.
void* guarded(std::size_t bytes) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  std::size_t unit = 0;
  check(driver<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity")(
            &unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity");
  CUdeviceptr address = 0;
  check(driver<decltype(&cuMemAddressReserve)>("cuMemAddressReserve")(&address, 2 * unit, 0, 0, 0),
        "cuMemAddressReserve");
  CUmemGenericAllocationHandle handle = 0;
  check(driver<decltype(&cuMemCreate)>("cuMemCreate")(&handle, unit, &properties, 0), "cuMemCreate");
  check(driver<decltype(&cuMemMap)>("cuMemMap")(address, unit, 0, handle, 0), "cuMemMap");
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(driver<decltype(&cuMemSetAccess)>("cuMemSetAccess")(address, unit, &access, 1), "cuMemSetAccess");
  return reinterpret_cast<void*>(address + unit - bytes);
}

__global__ void kernel(const Arguments<float> p) {
  __shared__ __align__(16) float a_tile[kWidth * kWidth];
  __shared__ __align__(16) float b_tile[kWidth * kWidth];
  pmpp::matmul::multiply_tiles<kWidth>(p, a_tile, b_tile);
}

void upload(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
}

void launch(const Arguments<float>& p) {
  const dim3 grid((kM + kWidth - 1) / kWidth, (kN + kWidth - 1) / kWidth, 1);
  kernel<<<grid, dim3(kWidth, kWidth)>>>(p);
  check(cudaGetLastError(), "launch");
  check(cudaDeviceSynchronize(), "synchronise");
}

void* plain(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  return memory;
}

void download(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

#else

void* guarded(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const memory = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || bytes > page) fail("mmap", 0);
  auto* const first = static_cast<char*>(memory);
  if (mprotect(first + page, page, PROT_NONE) != 0) fail("mprotect", 0);
  return first + page - bytes;
}

void* plain(std::size_t bytes) { return std::malloc(bytes); }
void upload(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void download(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

void launch(const Arguments<float>& p) {
  gridDim = {(kM + kWidth - 1) / kWidth, (kN + kWidth - 1) / kWidth, 1};
  for (unsigned x = 0; x < gridDim.x; ++x) {
    for (unsigned y = 0; y < gridDim.y; ++y) {
      float a_tile[kWidth * kWidth], b_tile[kWidth * kWidth];
      std::barrier<> barrier(kWidth * kWidth);
      std::vector<std::thread> threads;
      for (unsigned index = 0; index < kWidth * kWidth; ++index) {
        threads.emplace_back([&, index] {
          threadIdx = {index % kWidth, index / kWidth, 0};
          blockIdx = {x, y, 0};
          block_barrier = &barrier;
          pmpp::matmul::multiply_tiles<kWidth>(p, a_tile, b_tile);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  }
}

#endif

}  // namespace

int main() {
#ifdef __CUDACC__
  check(cudaFree(nullptr), "cudaFree");  // the driver's functions want a context
#endif
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> a(kBytesA / sizeof(float), nan), b(kBytesB / sizeof(float), nan), d(kElementsD, kUntouched);
  for (std::int64_t row = 0; row < kM; ++row) {
    for (std::int64_t k = 0; k < kK; ++k) a[row * kPitch + k] = value_a(row, k);
  }
  for (std::int64_t k = 0; k < kK; ++k) {
    for (std::int64_t col = 0; col < kN; ++col) b[col * kPitch + k] = value_b(k, col);
  }
  void* const device_a = guarded(kBytesA);
  void* const device_b = guarded(kBytesB);
  void* const device_d = plain(kElementsD * sizeof(float));
  upload(device_a, a.data(), kBytesA);
  upload(device_b, b.data(), kBytesB);
  upload(device_d, d.data(), kElementsD * sizeof(float));

  Arguments<float> p{};
  p.m = kM, p.n = kN, p.k = kK, p.batch = 1;
  p.a = static_cast<const float*>(device_a), p.a_row = kPitch, p.a_col = 1;
  p.b = static_cast<const float*>(device_b), p.b_row = 1, p.b_col = kPitch;
  p.d = static_cast<float*>(device_d) + kMargin * kPitchD + kMargin, p.d_row = kPitchD, p.d_col = 1;
  p.alpha = 1, p.beta = 0;
  launch(p);
  download(d.data(), device_d, kElementsD * sizeof(float));

  bool outside = false;
  for (std::size_t at = 0; at < kElementsD; ++at) {
    const std::int64_t row = static_cast<std::int64_t>(at) / kPitchD - kMargin;
    const std::int64_t col = static_cast<std::int64_t>(at) % kPitchD - kMargin;
    if (row >= 0 && row < kM && col >= 0 && col < kN) {
      float expected = 0;
      for (std::int64_t k = 0; k < kK; ++k) expected += value_a(row, k) * value_b(k, col);
      if (d[at] != expected) return 1;
    } else {
      outside = outside || d[at] != kUntouched;
    }
  }
  return outside ? 2 : 0;
}
