#ifndef TESSERA_DEVICE_CUDA_HOST_DEVICE_H_
#define TESSERA_DEVICE_CUDA_HOST_DEVICE_H_

// Marks functions that kernels call, on a GPU or emulated on the host.
#ifdef __CUDACC__
#define TESSERA_HOST_DEVICE __host__ __device__
#else
#define TESSERA_HOST_DEVICE
#endif

#endif  // TESSERA_DEVICE_CUDA_HOST_DEVICE_H_
