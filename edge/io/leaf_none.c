#include "edge/io/leaf.h"

bool fedge_leaf_matches(const uint8_t *head, size_t size)
{
    return size > 0 && head[0] == '{';
}

fedge_status fedge_leaf_read(const char *path, const fedge_leaf_visitor *visitor, fedge_error *err)
{
    (void)visitor;
    return fedge_fail(err, FEDGE_UNSUPPORTED,
                      "%s: this small build reads no JSON data; convert it to csv or npy", path);
}
