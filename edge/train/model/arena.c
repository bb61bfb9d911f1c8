#include "edge/train/model/arena.h"

#define ALIGNMENT ((size_t)FEDGE_BLOCK_ALIGNMENT)

void *fedge_carve(fedge_carver *from, size_t count, size_t element_size, size_t *account)
{
    if (count > (SIZE_MAX - ALIGNMENT) / element_size ||
        from->used > SIZE_MAX - ALIGNMENT - count * element_size) {
        from->overflow = true;
        return NULL;
    }
    const size_t bytes = (count * element_size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *part = !from->block ? NULL : from->block + from->used;
    from->used += bytes;
    *account += bytes;
    return part;
}

size_t fedge_carve_product(size_t a, size_t b)
{
    return b != 0 && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}
