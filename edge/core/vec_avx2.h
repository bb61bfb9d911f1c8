/* The AVX2 level of vec.h; internal to edge/core. */
#ifndef FEDGE_EDGE_CORE_VEC_AVX2_H
#define FEDGE_EDGE_CORE_VEC_AVX2_H

#include "edge/core/vec.h"

/* NULL where the machine's architecture has no AVX2. */
const fedge_vec_kernels *fedge_vec_kernels_avx2(void);

#endif
