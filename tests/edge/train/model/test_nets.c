/* Random nets of all layers: the plan is exact and enough, and memory is used in its time only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/edge/train/random_net.h"

#define NETS 1500

static void test_nets(void **state)
{
    (void)state;
    static random_net net;
    unsigned seen[FEDGE_LAYER_COUNT] = {0}, valid = 0;
    for (uint32_t i = 0; i < NETS; i++) {
        net_bytes from = net_bytes_of((const uint8_t *)&i, sizeof(i));
        from.at = sizeof(i); /* all from the numbers that follow */
        random_net_make(&from, &net);
        const char *wrong = random_net_check(&from, &net);
        if (wrong)
            fail_msg("net %u: %s", (unsigned)i, wrong);
        valid += !net.spoilt;
        for (uint32_t k = 0; !net.spoilt && k < net.spec.num_layers; k++)
            seen[net.spec.layers[k].type]++;
    }
    assert_true(valid > NETS / 2);
    for (int type = 0; type < FEDGE_LAYER_COUNT; type++) {
        if (seen[type] == 0) {
            fail_msg("no net had a %s: give its arguments a fit in random_net.c",
                     fedge_layer_type_name((fedge_layer_type)type));
        }
    }
}

/* A BatchNorm2d behind 1 × 1 images, and batches of one: the fuzzer must not make what is rightly
 * refused. */
static void test_single_values(void **state)
{
    (void)state;
    static random_net net;
    static const uint8_t BYTES[] = {0x0b, 0x54, 0x00, 0x00, 0x8a, 0x00, 0x0c, 0x08, 0xf5};
    net_bytes from = net_bytes_of(BYTES, sizeof(BYTES));
    random_net_make(&from, &net);
    const char *wrong = random_net_check(&from, &net);
    if (wrong)
        fail_msg("%s", wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nets),
                                       cmocka_unit_test(test_single_values)};
    return cmocka_run_group_tests_name("train nets", tests, NULL, NULL);
}
