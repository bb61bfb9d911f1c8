/* A build of the layer Linear alone: what it announces, and how it declines plans with others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "edge/plan/plan.h"
#include "edge/train/layers/layer.h"

#ifndef FEDGE_CHOSEN_LAYERS
#error "this test is of a build that chooses its layers"
#endif

static void test_announcements(void **state)
{
    (void)state;
    const char *name;
    unsigned lacking = 0;
    for (unsigned i = 0; (name = fedge_plan_feature(i)) != NULL; i++) {
        const bool other = strncmp(name, "layer:", 6) == 0 && strcmp(name, "layer:Linear") != 0;
        assert_int_equal(fedge_plan_lacks_feature(name), other);
        lacking += other;
    }
    assert_int_equal(lacking, FEDGE_LAYER_COUNT - 1);
    assert_string_equal(fedge_layer_type_name(FEDGE_LAYER_GLU), "GLU");
    assert_null(fedge_layer_ops_of(FEDGE_LAYER_GLU));
    assert_non_null(fedge_layer_ops_of(FEDGE_LAYER_LINEAR));
}

/* The name of the layer, and of the option that adds it. */
static void expect_decline(const char *must, const char *message)
{
    char text[512];
    fedge_plan *plan = NULL;
    fedge_error err = {0};
    (void)snprintf(text, sizeof(text),
                   "{\"fedge-plan\":1,\"must\":[%s],\"name\":\"chosen\",\"seed\":0,"
                   "\"model\":{\"input-shape\":[4],\"layers\":[{\"type\":\"GLU\"}],"
                   "\"loss\":{\"type\":\"CrossEntropyLoss\"}}}",
                   must);
    assert_true(fedge_plan_parse(text, strlen(text), &plan, &err) != FEDGE_OK);
    if (!strstr(err.message, message))
        fail_msg("\"%s\" is not in: %s", message, err.message);
}

static void test_declines(void **state)
{
    (void)state;
    expect_decline("\"layer:Linear\",\"layer:GLU\"",
                   "this build has no \"layer:GLU\": add it to FEDGE_LAYERS");
    expect_decline("", "this build has no GLU: add it to FEDGE_LAYERS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_announcements),
                                       cmocka_unit_test(test_declines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
