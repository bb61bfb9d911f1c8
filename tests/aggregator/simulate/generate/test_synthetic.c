#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/simulate/generate/synthetic.h"
#include "aggregator/simulate/generate/synthetic_kind.h"

/* Bounds on a mean over n independent draws: five standard deviations of it. What is drawn is a
 * fixed function of the seed, so these tests never fail by chance. */
#define SIGMAS 5.0
#define FEATURES 60
#define LABELS 10

static fedge_synthetic_spec spec_of(const char *text)
{
    fedge_synthetic_spec spec;
    fedge_error err;
    if (fedge_synthetic_parse(text, &spec, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return spec;
}

static fedge_synthetic *make(const char *text, uint64_t seed)
{
    const fedge_synthetic_spec spec = spec_of(text);
    fedge_synthetic *synthetic = NULL;
    fedge_error err;
    assert_int_equal(fedge_synthetic_new(&spec, seed, &synthetic, &err), FEDGE_OK);
    return synthetic;
}

static void assert_near(double value, double wanted, double bound)
{
    if (!(fabs(value - wanted) <= bound))
        fail_msg("%g, not %g ± %g", value, wanted, bound);
}

/* A share of [count] draws whose probability is [p]. */
static void assert_share(uint32_t hits, uint32_t count, double p)
{
    assert_near((double)hits / count, p, SIGMAS * sqrt(p * (1.0 - p) / count));
}

static void exponentials(void **state)
{
    (void)state;
    for (double x = -699.9; x < 700.0; x += 0.0317)
        assert_near(fedge_synthetic_exp(x) / exp(x), 1.0, 1e-12);
    assert_true(fedge_synthetic_exp(0.0) == 1.0);
    assert_true(fedge_synthetic_exp(-1e6) == 0.0);
}

static void normal_draws(void **state)
{
    (void)state;
    enum { COUNT = 400000 };
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    double sum = 0.0, squares = 0.0;
    uint32_t below[3] = {0};
    for (int i = 0; i < COUNT; i++) {
        const double x = fedge_synthetic_normal(&rng);
        sum += x;
        squares += x * x;
        for (int k = 0; k < 3; k++)
            below[k] += x < k - 1 + 0.5;
    }
    assert_near(sum / COUNT, 0.0, SIGMAS / sqrt(COUNT));
    assert_near(squares / COUNT, 1.0, SIGMAS * sqrt(2.0 / COUNT));
    for (int k = 0; k < 3; k++)
        assert_share(below[k], COUNT, 0.5 * erfc(-(k - 1 + 0.5) / sqrt(2.0)));
}

static void texts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } bad[] = {{"", "'' is not logistic[:FEATURES,LABELS], fedprox"},
               {"logistik", "'logistik' is not logistic"},
               {"logistic:5", "'logistic:5' is not logistic[:FEATURES,LABELS]"},
               {"logistic:5,-2", "is not logistic["},
               {"logistic:0,2", "1 to 65536 features"},
               {"logistic:5,1", "2 to 1000 labels"},
               {"logistic:65536,1000", "at most 16777216 for their product"},
               {"fedprox:1", "'fedprox:1' is not fedprox[:ALPHA,BETA or :iid]"},
               {"fedprox:1,", "is not fedprox["},
               {"fedprox:1,2,3", "is not fedprox["},
               {"fedprox: 1,2", "is not fedprox["},
               {"fedprox:-1,2", "is not fedprox["},
               {"fedprox:nan,2", "is not fedprox["},
               {"fedprox:1,1001", "from 0 to 1000"},
               {"images:1,2", "'images:1,2' is not images[:C,H,W[,LABELS]]"},
               {"images:3,32,32,10,1", "is not images["},
               {"images:0,32,32", "1 to 16 channels"},
               {"images:17,32,32", "1 to 16 channels"},
               {"images:3,7,32", "sides of 8 to 1024"},
               {"images:3,32,1025", "sides of 8 to 1024"},
               {"images:3,32,32,1", "2 to 1000 labels"},
               {"images:3,99999999999999999999,32", "sides of 8 to 1024"},
               {"images:16,1024,1024,2", "at most 16777216 for the product"},
               {"series:24", "'series:24' is not series[:BEFORE,AHEAD]"},
               {"series:24,0", "1 to 8192 hours before, and as many ahead"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fedge_synthetic_spec spec;
        fedge_error err;
        assert_int_not_equal(fedge_synthetic_parse(bad[i].text, &spec, &err), FEDGE_OK);
        if (!strstr(err.message, bad[i].message))
            fail_msg("'%s': \"%s\" has no \"%s\"", bad[i].text, err.message, bad[i].message);
    }
    fedge_synthetic_spec spec = spec_of("logistic:7,3");
    assert_true(spec.rank == 1 && spec.shape[0] == 7 && spec.num_labels == 3);
    assert_int_equal(spec.dtype, FEDGE_F32);
    spec = spec_of("fedprox:0.5,1e1");
    assert_true(spec.alpha == 0.5 && spec.beta == 10.0 && !spec.iid);
    assert_true(spec_of("fedprox:iid").iid);
    assert_true(spec_of("fedprox").alpha == 1.0);
    spec = spec_of("images:1,28,9");
    assert_int_equal(fedge_synthetic_example_values(&spec), 28 * 9);
    assert_true(spec.rank == 3 && spec.num_labels == 10 && spec.dtype == FEDGE_U8);
    assert_int_equal(spec_of("images:1,28,9,4").num_labels, 4);
    spec = spec_of("series:48,6");
    assert_true(spec.shape[0] == 48 && spec.num_targets == 6 && spec.num_labels == 0);
}

/* Every kind, and what its first examples are on every CPU: FNV-1a over the values' and labels'
 * bits, which are whole numbers or floats in little-endian order. */
static const struct {
    const char *text;
    uint32_t hash;
} KINDS[] = {{"logistic:20,4", 0xc7d79d24},
             {"fedprox:0.5,2", 0x95d285c6},
             {"fedprox:iid", 0x12b0f951},
             {"images:2,9,12,3", 0xdf6ea88c}};
#define NUM_KINDS (sizeof(KINDS) / sizeof(KINDS[0]))

static uint32_t add_byte(uint32_t hash, unsigned byte)
{
    return (hash ^ (byte & 0xFF)) * 16777619u;
}

static uint32_t add_word(uint32_t hash, uint32_t word)
{
    for (int i = 0; i < 4; i++)
        hash = add_byte(hash, word >> 8 * i);
    return hash;
}

/* Of one example. */
static uint32_t hash_of(fedge_synthetic *synthetic, const char *text, uint32_t client,
                        uint32_t index)
{
    const fedge_synthetic_spec spec = spec_of(text);
    const size_t count = fedge_synthetic_example_values(&spec);
    uint32_t hash = 2166136261u, words[1024];
    int32_t label = -1;
    assert_true(count <= sizeof(words) / sizeof(words[0]));
    (void)fedge_synthetic_example(synthetic, client, index, words, &label);
    assert_in_range(label, 0, spec.num_labels - 1);
    for (size_t i = 0; i < count; i++) {
        hash = spec.dtype == FEDGE_U8 ? add_byte(hash, ((const uint8_t *)words)[i])
                                      : add_word(hash, words[i]);
    }
    return add_word(hash, (uint32_t)label);
}

static void the_same_on_every_cpu(void **state)
{
    (void)state;
    for (size_t k = 0; k < NUM_KINDS; k++) {
        fedge_synthetic *synthetic = make(KINDS[k].text, 3);
        uint32_t hash = 0;
        for (uint32_t i = 0; i < 40; i++) {
            const uint32_t client = i < 36 ? i / 9 : FEDGE_SYNTHETIC_TEST;
            hash = add_word(hash, hash_of(synthetic, KINDS[k].text, client, i % 9));
        }
        if (hash != KINDS[k].hash)
            fail_msg("%s: 0x%08x, not 0x%08x", KINDS[k].text, hash, KINDS[k].hash);
        fedge_synthetic_free(synthetic);
    }
}

/* Whatever was drawn before; another seed, client or position is another example. */
static void an_example_has_a_name(void **state)
{
    (void)state;
    for (size_t k = 0; k < NUM_KINDS; k++) {
        const char *text = KINDS[k].text;
        fedge_synthetic *one = make(text, 3), *two = make(text, 3), *other = make(text, 4);
        const uint32_t wanted = hash_of(one, text, 5, 7);
        assert_int_not_equal(hash_of(two, text, 5, 6), wanted);
        assert_int_not_equal(hash_of(two, text, 6, 7), wanted);
        assert_int_not_equal(hash_of(two, text, FEDGE_SYNTHETIC_TEST, 7), wanted);
        assert_int_not_equal(hash_of(other, text, 5, 7), wanted);
        assert_int_equal(hash_of(two, text, 5, 7), wanted);
        fedge_synthetic_free(one);
        fedge_synthetic_free(two);
        fedge_synthetic_free(other);
    }
}

/* exp(N(4, 2)), rounded down, and 50: the median is e^4, a sixth is above e^6. */
static void counts_of_fedprox(void **state)
{
    (void)state;
    enum { CLIENTS = 20000 };
    static const uint32_t TESTED[] = {10, 54, 403, 2980};
    uint32_t above[4] = {0};
    for (uint32_t client = 0; client < CLIENTS; client++) {
        const uint32_t count = fedge_synthetic_draw_count(9, client);
        assert_in_range(count, 50, FEDGE_SYNTHETIC_MAX_EXAMPLES);
        for (int i = 0; i < 4; i++)
            above[i] += count - 50 >= TESTED[i];
    }
    for (int i = 0; i < 4; i++)
        assert_share(above[i], CLIENTS, 0.5 * erfc((log(TESTED[i]) - 4.0) / 2.0 / sqrt(2.0)));
    assert_int_equal(fedge_synthetic_draw_count(9, 3), fedge_synthetic_draw_count(9, 3));
}

/* x of one client: variances j^-1.2. */
static void spread_of_fedprox(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    fedge_synthetic *synthetic = make("fedprox", 2);
    double sum[FEATURES] = {0}, squares[FEATURES] = {0};
    for (uint32_t i = 0; i < COUNT; i++) {
        float x[FEATURES];
        int32_t label = 0;
        assert_true(isnan(fedge_synthetic_example(synthetic, 4, i, x, &label)));
        for (int j = 0; j < FEATURES; j++) {
            sum[j] += (double)x[j];
            squares[j] += (double)x[j] * (double)x[j];
        }
    }
    for (int j = 0; j < FEATURES; j++) {
        const double mean = sum[j] / COUNT, wanted = pow(j + 1, -1.2);
        assert_near(squares[j] / COUNT - mean * mean, wanted, SIGMAS * wanted * sqrt(2.0 / COUNT));
    }
    fedge_synthetic_free(synthetic);
}

typedef struct heterogeneity {
    double means;  /* variance over clients of the mean over a client's values */
    double labels; /* mean total variation between a client's labels and those of all */
} heterogeneity;

static heterogeneity measure(const char *text)
{
    enum { CLIENTS = 300, COUNT = 200 };
    static double shares[CLIENTS][LABELS];
    fedge_synthetic *synthetic = make(text, 6);
    double all[LABELS] = {0}, sum = 0.0, squares = 0.0, distance = 0.0;
    memset(shares, 0, sizeof(shares));
    for (uint32_t c = 0; c < CLIENTS; c++) {
        double mean = 0.0;
        for (uint32_t i = 0; i < COUNT; i++) {
            float x[FEATURES];
            int32_t label = 0;
            (void)fedge_synthetic_example(synthetic, c, i, x, &label);
            shares[c][label] += 1.0 / COUNT;
            all[label] += 1.0 / COUNT / CLIENTS;
            for (int j = 0; j < FEATURES; j++)
                mean += (double)x[j] / FEATURES / COUNT;
        }
        sum += mean;
        squares += mean * mean;
    }
    for (uint32_t c = 0; c < CLIENTS; c++) {
        for (int l = 0; l < LABELS; l++)
            distance += 0.5 * fabs(shares[c][l] - all[l]) / CLIENTS;
    }
    fedge_synthetic_free(synthetic);
    return (heterogeneity){squares / CLIENTS - sum / CLIENTS * sum / CLIENTS, distance};
}

/* v_k has variance beta² + 1 / 60 in its mean. */
static void clients_of_fedprox_differ(void **state)
{
    (void)state;
    const heterogeneity iid = measure("fedprox:iid");
    double labels = 0.0;
    for (int beta = 0; beta <= 2; beta++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "fedprox:0,%d", beta);
        const heterogeneity found = measure(text);
        const double wanted = beta * beta + 1.0 / FEATURES;
        assert_near(found.means, wanted, SIGMAS * wanted * sqrt(2.0 / 300));
        assert_true(found.labels > labels && found.labels > 4.0 * iid.labels);
        labels = found.labels;
    }
    /* a mean over 60 · 200 values that have variance 1 and less */
    assert_true(iid.means < 1.0 / (FEATURES * 200));
    /* labels drawn 200 times: their shares are off by sqrt(p (1 - p) / 200) < 0.035 */
    assert_true(iid.labels < 0.5 * LABELS * 0.035);
}

/* u_k is the same for all labels: alpha moves all logits of an example alike. */
static void alpha_changes_no_label(void **state)
{
    (void)state;
    fedge_synthetic *none = make("fedprox:0,1", 8), *much = make("fedprox:30,1", 8);
    for (uint32_t i = 0; i < 3000; i++) {
        float x[2][FEATURES];
        int32_t labels[2] = {-1, -2};
        (void)fedge_synthetic_example(none, i / 50, i % 50, x[0], &labels[0]);
        (void)fedge_synthetic_example(much, i / 50, i % 50, x[1], &labels[1]);
        assert_memory_equal(x[0], x[1], sizeof(x[0]));
        assert_int_equal(labels[0], labels[1]);
    }
    fedge_synthetic_free(none);
    fedge_synthetic_free(much);
}

/* x is standard normal; the likeliest label, which the law's W and b tell, is drawn as often as its
 * probability says. */
static void logistic_regression(void **state)
{
    (void)state;
    enum { COUNT = 20000, WIDTH = 12, CLASSES = 5 };
    fedge_synthetic *synthetic = make("logistic:12,5", 7);
    const fedge_synthetic_spec spec = spec_of("logistic:12,5");
    double w[CLASSES * (WIDTH + 2)], squares = 0.0, logits = 0.0, probability = 0.0;
    assert_int_equal(fedge_synthetic_logistic.law_size(&spec), sizeof(w));
    fedge_synthetic_logistic.draw_law(&spec, 7, FEDGE_SYNTHETIC_TEST, w);
    uint32_t hits = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        float x[WIDTH];
        int32_t label = 0, likeliest = 0;
        double largest = -INFINITY, sum = 0.0, logit[CLASSES];
        const double best = fedge_synthetic_example(synthetic, i % 10, i / 10, x, &label);
        for (int c = 0; c < CLASSES; c++) {
            logit[c] = w[CLASSES * WIDTH + c];
            for (int j = 0; j < WIDTH; j++) {
                logit[c] += w[c * WIDTH + j] * (double)x[j];
                squares += c == 0 ? (double)x[j] * (double)x[j] : 0.0;
            }
            logits += logit[c] * logit[c];
            likeliest = logit[c] > largest ? c : likeliest;
            largest = fmax(largest, logit[c]);
        }
        for (int c = 0; c < CLASSES; c++)
            sum += exp(logit[c] - largest);
        assert_near(best, 1.0 / sum, 1e-9);
        probability += best / COUNT;
        hits += label == likeliest;
    }
    assert_near(squares / COUNT / WIDTH, 1.0, SIGMAS * sqrt(2.0 / COUNT / WIDTH));
    assert_share(hits, COUNT, probability);
    /* 65 weights are drawn, so the variance of the logits is only near that of the law */
    assert_near(logits / COUNT / CLASSES, 9.0, SIGMAS * 9.0 * sqrt(2.0 / (CLASSES * (WIDTH + 1))));
    fedge_synthetic_free(synthetic);
}

/* The mean picture of each label tells new images apart, and labels are equally frequent. */
static void images_show_their_label(void **state)
{
    (void)state;
    enum { COUNT = 4000, VALUES = 3 * 16 * 16 };
    static double mean[LABELS][VALUES];
    uint32_t of[LABELS] = {0}, hits = 0;
    fedge_synthetic *synthetic = make("images:3,16,16", 5);
    memset(mean, 0, sizeof(mean));
    for (uint32_t i = 0; i < 2 * COUNT; i++) {
        uint8_t x[VALUES];
        int32_t label = 0, nearest = -1;
        double least = INFINITY;
        (void)fedge_synthetic_example(synthetic, i % 20, i / 20, x, &label);
        for (int j = 0; j < VALUES && i < COUNT; j++)
            mean[label][j] += x[j];
        of[label] += i < COUNT;
        for (int l = 0; l < LABELS && i >= COUNT; l++) {
            double distance = 0.0;
            for (int j = 0; j < VALUES; j++) {
                const double off = mean[l][j] / of[l] - x[j];
                distance += off * off;
            }
            nearest = distance < least ? l : nearest;
            least = fmin(least, distance);
        }
        hits += nearest == label;
    }
    for (int l = 0; l < LABELS; l++)
        assert_share(of[l], COUNT, 1.0 / LABELS);
    assert_true(hits > COUNT / 2); /* chance: a tenth */
    fedge_synthetic_free(synthetic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponentials),
        cmocka_unit_test(normal_draws),
        cmocka_unit_test(texts),
        cmocka_unit_test(the_same_on_every_cpu),
        cmocka_unit_test(an_example_has_a_name),
        cmocka_unit_test(counts_of_fedprox),
        cmocka_unit_test(spread_of_fedprox),
        cmocka_unit_test(clients_of_fedprox_differ),
        cmocka_unit_test(alpha_changes_no_label),
        cmocka_unit_test(logistic_regression),
        cmocka_unit_test(images_show_their_label),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
