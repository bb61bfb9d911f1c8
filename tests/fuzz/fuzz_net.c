/* Nets: a random one that is valid trains a step and evaluates in exactly the planned bytes; one
 * that is not is refused with a message. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/edge/train/random_net.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static random_net net; /* large */
    net_bytes from = net_bytes_of(data, size);
    random_net_make(&from, &net);
    const char *wrong = random_net_check(&from, &net);
    if (wrong) {
        (void)fprintf(stderr, "%s\n", wrong);
        abort();
    }
    return 0;
}
