/* tensor_map.cuh - tensor maps (CUtensorMap) for the TMA copies of Hopper, encoded on the host */
#ifndef PUNICA_BACKEND_CUDA_TENSOR_MAP_CUH
#define PUNICA_BACKEND_CUDA_TENSOR_MAP_CUH

#include <cudaTypedefs.h>

#include "backend/cuda/kernel.cuh"

/* An array that is copied in boxes. The first dimension is contiguous; strides are the bytes between elements of the
 * others. */
typedef struct {
    unsigned n_dims;
    CUtensorMapDataType type;
    cuuint64_t dims[4], strides[3];
    cuuint32_t box[4];
} boxed_array;

static inline CUtensorMapDataType act_map_type(const cuda_backend *cu)
{
    return cu->base.act == DTYPE_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

/* Returns the tensor map of an array; keeps a failure under this name. */
static inline CUtensorMap map_of(cuda_backend *cu, const char *name, const void *data, const boxed_array &a,
                                 CUtensorMapSwizzle swizzle)
{
    CUtensorMap map;
    cuuint32_t steps[4] = {1, 1, 1, 1};
    CUresult status = ((PFN_cuTensorMapEncodeTiled_v12000)cu->encode_map)(
        &map, a.type, a.n_dims, (void *)data, a.dims, a.strides, a.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status != CUDA_SUCCESS)
        cuda_keep(cu, cudaErrorInvalidValue, name);
    return map;
}

#endif
