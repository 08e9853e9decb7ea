/* num/inline.h: how the inline functions of this folder are declared. A CUDA compiler makes each for
 * the host and for the device, so that kernels use the one definition. */
#ifndef OZ_NUM_INLINE_H
#define OZ_NUM_INLINE_H

#if defined(__CUDACC__)
#define OZ_INLINE static inline __host__ __device__
#else
#define OZ_INLINE static inline
#endif

#endif
