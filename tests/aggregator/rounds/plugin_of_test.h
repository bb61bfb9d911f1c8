/* Which tables plugin_of_test.so offers from now on; NULL: none. */
#ifndef FEDGE_TESTS_AGGREGATOR_ROUNDS_PLUGIN_OF_TEST_H
#define FEDGE_TESTS_AGGREGATOR_ROUNDS_PLUGIN_OF_TEST_H

void plugin_set_tables(const void *of_strategy, const void *of_metrics);

#endif
