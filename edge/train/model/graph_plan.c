#include "edge/train/model/graph_plan.h"

#include <assert.h>
#include <string.h>

#include "edge/train/model/internals.h"

static_assert(2 * FEDGE_MAX_LAYERS < UINT16_MAX, "times fit fedge_interval");
static_assert(FEDGE_MAX_LAYERS < FEDGE_INPUT_MODEL, "no layer is mistaken for the input");

uint64_t fedge_graph_aligned(uint64_t bytes)
{
    return (bytes + FEDGE_BLOCK_ALIGNMENT - 1) / FEDGE_BLOCK_ALIGNMENT * FEDGE_BLOCK_ALIGNMENT;
}

uint64_t fedge_graph_gradient_bytes(const fedge_graph_plan *plan, uint32_t index)
{
    const fedge_layer_spec *layer = &plan->spec->layers[index];
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(layer, list);
    uint64_t bytes = 0;
    for (uint32_t i = plan->layers[index].fuses_sgd ? 1 : 0; i < n; i++) {
        if (fedge_layer_trains(layer, &list[i]))
            bytes += fedge_graph_aligned(fedge_layer_tensor_count(&list[i]) * sizeof(float));
    }
    return bytes;
}

void fedge_graph_plan_run(const fedge_graph_plan *plan, uint32_t index, fedge_layer_run *run)
{
    const fedge_layer_plan *layer = &plan->layers[index];
    *run = (fedge_layer_run){.spec = &plan->spec->layers[index],
                             .kernels = plan->kernels,
                             .batch = fedge_micro_batch(plan->options),
                             .num_inputs = layer->num_sources,
                             .masked = layer->masked,
                             .in_int8 = layer->in_int8,
                             .out = layer->out};
    if (layer->fuses_relu)
        run->ceiling = fedge_layer_ops_of(plan->spec->layers[layer->first_reader].type)->ceiling;
    for (uint32_t i = 0; i < layer->num_sources; i++) {
        const uint16_t source = layer->sources[i];
        run->in[i] = source == FEDGE_INPUT_MODEL ? plan->input : plan->layers[source].out;
    }
}

/* Counts a layer's tensors, each within the limit. */
static fedge_status count_values(fedge_graph_plan *plan, uint32_t index, bool *trains,
                                 fedge_error *err)
{
    const fedge_layer_spec *spec = &plan->spec->layers[index];
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(spec, list);
    *trains = false;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t count = 1;
        for (uint32_t k = 0; k < list[i].rank; k++) {
            count *= list[i].shape[k]; /* dimensions < 2^30 each, so count < 2^61 here */
            if (count > FEDGE_MAX_ELEMENTS)
                break;
        }
        size_t *sum = list[i].buffer ? &plan->num_buffers : &plan->num_values;
        if (count > FEDGE_MAX_ELEMENTS - *sum) {
            return fedge_fail(err, FEDGE_TOO_BIG,
                              "layer %u (%s): with its \"%s\" the model has more than the limit of "
                              "%zu parameters",
                              (unsigned)index, fedge_layer_type_name(spec->type), list[i].name,
                              FEDGE_MAX_ELEMENTS);
        }
        *sum += (size_t)count;
        const bool in_int8 = fedge_layer_in_int8(plan->options, &list[i]);
        plan->num_floats += list[i].buffer || in_int8 ? 0 : (size_t)count;
        plan->layers[index].in_int8 = plan->layers[index].in_int8 || in_int8;
        if (fedge_layer_trains(spec, &list[i])) {
            plan->num_trained += (size_t)count;
            *trains = true;
        }
    }
    return FEDGE_OK;
}

/* Shapes, sources and readers. */
static fedge_status survey(fedge_graph_plan *plan, fedge_error *err)
{
    const fedge_model_spec *spec = plan->spec;
    FEDGE_TRY(fedge_shape_input(spec, &plan->input, err));
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        fedge_layer_plan *layer = &plan->layers[i];
        fedge_shape in[FEDGE_MAX_LAYER_INPUTS];
        uint32_t num_sources = 0;
        bool trains = false;
        *layer = (fedge_layer_plan){0};
        FEDGE_TRY(fedge_layer_sources(spec, i, layer->sources, &num_sources, err));
        layer->num_sources = (uint8_t)num_sources;
        for (uint32_t k = 0; k < num_sources; k++) {
            const uint16_t source = layer->sources[k];
            in[k] = source == FEDGE_INPUT_MODEL ? plan->input : plan->layers[source].out;
        }
        FEDGE_TRY(fedge_shape_infer(spec, i, in, num_sources, &layer->out, err));
        FEDGE_TRY(count_values(plan, i, &trains, err));
        /* A layer needs a backward pass if it or a layer before it is trained. */
        layer->backward = trains && plan->options->training;
        for (uint32_t k = 0; k < num_sources; k++) {
            if (layer->sources[k] != FEDGE_INPUT_MODEL) {
                fedge_layer_plan *source = &plan->layers[layer->sources[k]];
                layer->backward = layer->backward || source->backward;
                source->num_readers++;
                source->first_reader = (uint16_t)i;
            }
        }
    }
    return FEDGE_OK;
}

uint64_t fedge_graph_widened_bytes(const fedge_graph_plan *plan, uint32_t index)
{
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const bool half = plan->options->weights != FEDGE_STORAGE_FP32;
    const uint32_t n = half ? fedge_layer_tensors(&plan->spec->layers[index], list) : 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += list[i].buffer
                     ? 0
                     : fedge_graph_aligned(fedge_layer_tensor_count(&list[i]) * sizeof(float));
    }
    return bytes;
}

static const fedge_layer_ops *ops_of(const fedge_graph_plan *plan, uint32_t index)
{
    return fedge_layer_ops_of(plan->spec->layers[index].type);
}

fedge_layer_sizes fedge_graph_sizes(const fedge_graph_plan *plan, uint32_t index)
{
    const fedge_layer_ops *ops = ops_of(plan, index);
    fedge_layer_run run;
    fedge_layer_sizes sizes = {0};
    fedge_graph_plan_run(plan, index, &run);
    if (ops->sizes)
        ops->sizes(&run, &sizes);
    return sizes;
}

/* Which of x and y the layer's backward pass reads. */
static unsigned uses(const fedge_graph_plan *plan, uint32_t index)
{
    const fedge_layer_plan *layer = &plan->layers[index];
    return !layer->backward || layer->masked || layer->absorbed
               ? 0
               : ops_of(plan, index)->flags & (FEDGE_USES_X | FEDGE_USES_Y);
}

/* True if layer [index] may overwrite its first input with its output. */
static bool works_in_place(const fedge_graph_plan *plan, uint32_t index)
{
    const fedge_layer_plan *layer = &plan->layers[index];
    const unsigned flags = ops_of(plan, index)->flags;
    if (!(flags & FEDGE_Y_ON_X) || layer->sources[0] == FEDGE_INPUT_MODEL ||
        plan->options->unshared ||
        plan->spec->layers[index].recompute != plan->spec->layers[layer->sources[0]].recompute)
        return false;
    const fedge_layer_plan *source = &plan->layers[layer->sources[0]];
    const bool read_later =
        (uses(plan, index) & FEDGE_USES_X) || plan->layers[source->output_of].output_read_backward;
    return source->num_readers == 1 && !read_later;
}

/* True if layer [index] may overwrite its output's gradient with its first input's. */
static bool passes_in_place(const fedge_graph_plan *plan, uint32_t index)
{
    const fedge_layer_plan *layer = &plan->layers[index];
    if (!(ops_of(plan, index)->flags & FEDGE_DX_ON_DY) || layer->sources[0] == FEDGE_INPUT_MODEL ||
        plan->options->unshared)
        return false;
    return plan->layers[layer->sources[0]].num_readers == 1;
}

/* Lets layers absorb the rectifiers after them. Not with activations in 16 bits: from a rounded
 * input, the backward pass could rectify other elements than the forward pass. */
static void absorb_rectifiers(fedge_graph_plan *plan)
{
    const bool may = !plan->options->unshared && plan->options->activations == FEDGE_STORAGE_FP32;
    for (uint32_t i = 0; may && i < plan->spec->num_layers; i++) {
        fedge_layer_plan *layer = &plan->layers[i];
        const float ceiling = ops_of(plan, i)->ceiling;
        const uint16_t source = layer->sources[0];
        if (ceiling > 0.0f && source != FEDGE_INPUT_MODEL &&
            plan->layers[source].num_readers == 1 && fedge_graph_sizes(plan, source).fuses_relu &&
            plan->spec->layers[i].recompute == plan->spec->layers[source].recompute)
            plan->layers[source].fuses_relu = layer->absorbed = true;
    }
}

/* Lets layers take the SGD step of their first tensor inside the backward pass. */
static void choose_fused_steps(fedge_graph_plan *plan)
{
    const fedge_model_options *options = plan->options;
    const bool plain = options->training && options->optimizer == FEDGE_OPTIMIZER_SGD &&
                       !options->nesterov && !fedge_stores_gradients(options) &&
                       !options->proximal && !options->correction &&
                       fedge_multiplies_fp32(options) && options->weights == FEDGE_STORAGE_FP32;
    for (uint32_t i = 0; plain && i < plan->spec->num_layers; i++) {
        const fedge_layer_spec *layer = &plan->spec->layers[i];
        fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
        plan->layers[i].fuses_sgd =
            plan->layers[i].backward && fedge_graph_sizes(plan, i).fuses_sgd &&
            layer->num_train_channels == 0 && fedge_layer_tensors(layer, list) > 0 &&
            fedge_layer_trains(layer, &list[0]);
    }
}

/* True if other layers read, backward, the array that a mask of layer [index] would replace. */
static bool is_shared(const fedge_graph_plan *plan, uint32_t index)
{
    const bool uses_y = (ops_of(plan, index)->flags & FEDGE_USES_Y) != 0;
    const uint16_t array = uses_y ? (uint16_t)index : plan->layers[index].sources[0];
    if (array == FEDGE_INPUT_MODEL)
        return true; /* owned by the caller */
    bool shared = !uses_y && (uses(plan, array) & FEDGE_USES_Y) != 0;
    for (uint32_t i = array + 1u; i < plan->spec->num_layers; i++) {
        for (uint32_t k = 0; k < plan->layers[i].num_sources; k++) {
            shared = shared || (i != index && plan->layers[i].sources[k] == array &&
                                (uses(plan, i) & FEDGE_USES_X) != 0);
        }
    }
    return shared;
}

/* Chooses the layers that save a mask instead of values; false if there are none. From the last to
 * the first, because a choice depends on the readers'. */
static bool choose_masks(fedge_graph_plan *plan)
{
    bool any = false;
    for (uint32_t i = plan->spec->num_layers; i-- > 0;) {
        fedge_layer_plan *layer = &plan->layers[i];
        layer->masked = layer->backward && !layer->absorbed &&
                        fedge_graph_sizes(plan, i).mask > 0 && !plan->options->unshared &&
                        !is_shared(plan, i);
        any = any || layer->masked;
    }
    return any;
}

static void extend(fedge_interval *interval, uint32_t time)
{
    interval->begin = time < interval->begin ? (uint16_t)time : interval->begin;
    interval->end = time > interval->end ? (uint16_t)time : interval->end;
}

#define MAX_UNITS (UINT32_MAX / 2) /* units of an arena */

/* Bytes in units. A size beyond MAX_UNITS becomes one that place_parts refuses. */
static uint32_t units(uint64_t bytes)
{
    const uint64_t count = fedge_graph_aligned(bytes) / FEDGE_BLOCK_ALIGNMENT;
    return count > MAX_UNITS ? MAX_UNITS + 1 : (uint32_t)count;
}

static void set_part(fedge_layer_plan *layer, fedge_part part, uint64_t bytes, uint32_t begin,
                     uint32_t end)
{
    layer->parts[part] =
        (fedge_interval){.size = units(bytes), .begin = (uint16_t)begin, .end = (uint16_t)end};
}

uint64_t fedge_graph_separate_bytes(const fedge_graph_plan *plan, uint32_t index, uint32_t input)
{
    const fedge_layer_plan *layer = &plan->layers[index];
    const uint16_t source = layer->sources[input];
    if (source == FEDGE_INPUT_MODEL || !plan->layers[source].backward)
        return 0;
    bool first = plan->layers[source].first_reader == index;
    for (uint32_t other = 0; other < input; other++)
        first = first && layer->sources[other] != source;
    return first ? 0
                 : fedge_graph_aligned((uint64_t)fedge_shape_count(&plan->layers[source].out) *
                                       fedge_micro_batch(plan->options) * sizeof(float));
}

uint64_t fedge_graph_all_separate_bytes(const fedge_graph_plan *plan, uint32_t index)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < plan->layers[index].num_sources; k++)
        sum += fedge_graph_separate_bytes(plan, index, k);
    return sum;
}

static bool reads(const fedge_graph_plan *plan, uint32_t index, uint32_t source)
{
    bool any = false;
    for (uint32_t k = 0; k < plan->layers[index].num_sources; k++)
        any = any || plan->layers[index].sources[k] == source;
    return any;
}

/* Sets the times at which layers with "recompute" are recomputed: the first time backward that
 * needs their output, including the recomputing of a reader. From the last to the first, because a
 * time depends on the readers'. The last layer's output is needed at once, so it is not recomputed.
 */
static void plan_recomputing(fedge_graph_plan *plan)
{
    const uint32_t loss = plan->spec->num_layers, never = 2 * loss + 1;
    for (uint32_t i = loss; i-- > 0;) {
        fedge_layer_plan *layer = &plan->layers[i];
        uint32_t first = never;
        layer->recompute = 0;
        if (!plan->spec->layers[i].recompute || i + 1 == loss || plan->options->unshared)
            continue;
        if ((uses(plan, i) & FEDGE_USES_Y) != 0 ||
            (layer->backward && !layer->masked && fedge_graph_sizes(plan, i).saved > 0))
            first = 2 * loss - i;
        for (uint32_t r = i + 1; r < loss; r++) {
            if (reads(plan, r, i)) {
                const uint32_t needed = uses(plan, r) & FEDGE_USES_X ? 2 * loss - r : never;
                const uint32_t recompute =
                    plan->layers[r].recompute != 0 ? plan->layers[r].recompute : never;
                first = needed < first ? needed : first;
                first = recompute < first ? recompute : first;
            }
        }
        layer->recompute = (uint16_t)(first == never ? 0 : first);
    }
}

/* Bytes of scratch for the layers recomputed at [time], one after another. */
static uint64_t recompute_bytes(const fedge_graph_plan *plan, uint32_t time)
{
    uint64_t max = 0;
    for (uint32_t i = 0; i < plan->spec->num_layers; i++) {
        if (plan->layers[i].recompute == time) {
            const uint64_t forward = fedge_graph_aligned(fedge_graph_sizes(plan, i).forward) +
                                     fedge_graph_widened_bytes(plan, i);
            max = forward > max ? forward : max;
        }
    }
    return max;
}

/* Extends the life of layer [index]'s output to [time] of the backward pass. */
static void use_backward(fedge_graph_plan *plan, uint32_t index, uint32_t time)
{
    fedge_layer_plan *layer = &plan->layers[index];
    extend(&layer->parts[layer->recompute != 0 ? FEDGE_PART_RECOMPUTE : FEDGE_PART_OUTPUT], time);
}

/* Extends the lives of layer [index]'s inputs to their uses, forward and backward. */
static void use_inputs(fedge_graph_plan *plan, uint32_t index)
{
    const fedge_layer_plan *layer = &plan->layers[index];
    for (uint32_t k = 0; k < layer->num_sources; k++) {
        const uint16_t source = layer->sources[k];
        if (source == FEDGE_INPUT_MODEL)
            continue;
        extend(&plan->layers[source].parts[FEDGE_PART_OUTPUT], index);
        if (uses(plan, index) & FEDGE_USES_X)
            use_backward(plan, source, 2 * plan->spec->num_layers - index);
        if (layer->recompute != 0)
            use_backward(plan, source, layer->recompute);
    }
}

/* Sets the sizes of all parts, and the times of their first and last use. */
static void set_parts(fedge_graph_plan *plan)
{
    const uint32_t last = plan->spec->num_layers - 1, loss = plan->spec->num_layers;
    for (uint32_t i = 0; i <= last; i++) {
        fedge_layer_plan *layer = &plan->layers[i];
        const uint32_t back = 2 * loss - i;
        const uint64_t out = (uint64_t)fedge_shape_count(&layer->out) *
                             fedge_micro_batch(plan->options) * sizeof(float);
        const fedge_layer_sizes sizes = fedge_graph_sizes(plan, i);
        set_part(layer, FEDGE_PART_OUTPUT, out, i, i == last ? loss : i);
        const uint64_t widened = fedge_graph_widened_bytes(plan, i);
        set_part(layer, FEDGE_PART_FORWARD, fedge_graph_aligned(sizes.forward) + widened, i, i);
        if (layer->recompute != 0)
            set_part(layer, FEDGE_PART_RECOMPUTE, out, layer->recompute, layer->recompute);
        use_inputs(plan, i);
        if (layer->backward) {
            const uint64_t gradients =
                fedge_stores_gradients(plan->options) ? 0 : fedge_graph_gradient_bytes(plan, i);
            const uint64_t scratch = fedge_graph_aligned(sizes.backward) + gradients +
                                     fedge_graph_all_separate_bytes(plan, i) + widened;
            const uint64_t recompute = recompute_bytes(plan, back);
            if (uses(plan, i) & FEDGE_USES_Y)
                use_backward(plan, i, back);
            set_part(layer, FEDGE_PART_GRADIENT, out,
                     i == last ? loss : 2 * loss - layer->first_reader, back);
            set_part(layer, FEDGE_PART_SAVED, layer->masked ? sizes.mask : sizes.saved,
                     layer->recompute != 0 ? layer->recompute : i, back);
            set_part(layer, FEDGE_PART_BACKWARD, scratch > recompute ? scratch : recompute, back,
                     back);
        }
    }
}

/* Lets layers that work in place share arrays. */
static void share_parts(fedge_graph_plan *plan)
{
    for (uint32_t i = 0; i < plan->spec->num_layers; i++) {
        fedge_layer_plan *layer = &plan->layers[i];
        if (works_in_place(plan, i)) {
            layer->output_of = plan->layers[layer->sources[0]].output_of;
            fedge_interval *whole = &plan->layers[layer->output_of].parts[FEDGE_PART_OUTPUT];
            extend(whole, layer->parts[FEDGE_PART_OUTPUT].end);
            layer->parts[FEDGE_PART_OUTPUT].size = 0;
            if (layer->recompute !=
                0) { /* the array's owner is recomputed too, before this layer */
                extend(&plan->layers[layer->output_of].parts[FEDGE_PART_RECOMPUTE],
                       layer->parts[FEDGE_PART_RECOMPUTE].end);
                layer->parts[FEDGE_PART_RECOMPUTE].size = 0;
            }
        }
        fedge_layer_plan *root = &plan->layers[layer->output_of];
        root->output_read_backward =
            root->output_read_backward || (uses(plan, i) & FEDGE_USES_Y) != 0;
    }
    for (uint32_t i = plan->spec->num_layers; i-- > 0;) {
        fedge_layer_plan *layer = &plan->layers[i];
        if (layer->backward && passes_in_place(plan, i)) {
            fedge_layer_plan *source = &plan->layers[layer->sources[0]];
            if (source->backward) {
                source->gradient_of = layer->gradient_of;
                fedge_interval *whole =
                    &plan->layers[layer->gradient_of].parts[FEDGE_PART_GRADIENT];
                extend(whole, source->parts[FEDGE_PART_GRADIENT].end);
                source->parts[FEDGE_PART_GRADIENT].size = 0;
            }
        }
    }
}

/* The last time forward and the first time backward at which the array of [root] is used. */
static void find_uses(const fedge_graph_plan *plan, uint32_t root, uint32_t *forward,
                      uint32_t *backward)
{
    const uint32_t loss = plan->spec->num_layers;
    *forward = root;
    *backward = 2 * loss + 1;
    for (uint32_t i = root; i < loss; i++) {
        const fedge_layer_plan *layer = &plan->layers[i];
        bool uses_it = layer->output_of == root && (uses(plan, i) & FEDGE_USES_Y) != 0;
        for (uint32_t k = 0; k < layer->num_sources; k++) {
            const uint16_t source = layer->sources[k];
            if (source == FEDGE_INPUT_MODEL || plan->layers[source].output_of != root)
                continue;
            *forward = i;
            uses_it = uses_it || (uses(plan, i) & FEDGE_USES_X) != 0;
            if (layer->recompute != 0 && layer->recompute < *backward)
                *backward = layer->recompute;
        }
        if (uses_it && 2 * loss - i < *backward)
            *backward = 2 * loss - i;
    }
}

/* Plans arrays that the backward pass reads to be stored in 16 bits meanwhile. Not the model's
 * outputs, whose gradient follows at once. */
static void plan_half(fedge_graph_plan *plan)
{
    const uint32_t loss = plan->spec->num_layers;
    uint32_t exact = 0; /* layers before this one may output indices */
    for (uint32_t i = 0; i < loss; i++) {
        const uint16_t source = plan->layers[i].sources[0];
        if ((ops_of(plan, i)->flags & FEDGE_EXACT_X) && source != FEDGE_INPUT_MODEL)
            exact = source + 1u;
    }
    for (uint32_t i = 0; i < loss; i++) {
        fedge_layer_plan *layer = &plan->layers[i];
        fedge_interval *output = &layer->parts[FEDGE_PART_OUTPUT];
        uint32_t forward, backward;
        layer->to_half = layer->from_half = 0;
        if (plan->options->activations == FEDGE_STORAGE_FP32 || i < exact || output->size == 0 ||
            output->end <= loss || i == plan->layers[loss - 1].output_of)
            continue;
        find_uses(plan, i, &forward, &backward);
        layer->parts[FEDGE_PART_RECOMPUTE] =
            (fedge_interval){.size = output->size, .begin = (uint16_t)backward, .end = output->end};
        set_part(layer, FEDGE_PART_HALF,
                 (uint64_t)fedge_shape_count(&layer->out) * fedge_micro_batch(plan->options) *
                     sizeof(uint16_t),
                 forward, backward);
        output->end = (uint16_t)forward;
        layer->to_half = (uint16_t)forward;
        layer->from_half = (uint16_t)backward;
    }
}

#define UNPLACED UINT32_MAX

static fedge_interval *part_at(fedge_graph_plan *plan, uint32_t index)
{
    return &plan->layers[index / FEDGE_PARTS].parts[index % FEDGE_PARTS];
}

/* The lowest offset at which [part] does not collide with the [n] placed intervals, which are
 * sorted by offset. */
static uint32_t find_offset(fedge_graph_plan *plan, const fedge_interval *part,
                            const uint16_t *placed, uint32_t n)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        const fedge_interval *other = part_at(plan, placed[i]);
        const bool overlaps =
            plan->options->unshared || (part->begin <= other->end && other->begin <= part->end);
        if (overlaps && other->offset < at + (uint64_t)part->size &&
            at < (uint64_t)other->offset + other->size)
            at = other->offset + other->size;
    }
    return at;
}

/* Places intervals greedily, the largest first, each at the lowest offset where it fits. */
static bool place_parts(fedge_graph_plan *plan)
{
    uint16_t placed[FEDGE_MAX_LAYERS * FEDGE_PARTS];
    const uint32_t count = plan->spec->num_layers * FEDGE_PARTS;
    uint64_t arena = 0;
    for (uint32_t i = 0; i < count; i++)
        part_at(plan, i)->offset = UNPLACED;
    for (uint32_t n = 0;;) {
        uint32_t next = count;
        for (uint32_t i = 0; i < count; i++) {
            if (part_at(plan, i)->offset == UNPLACED && part_at(plan, i)->size > 0 &&
                (next == count || part_at(plan, i)->size > part_at(plan, next)->size))
                next = i;
        }
        if (next == count)
            break;
        fedge_interval *part = part_at(plan, next);
        part->offset = find_offset(plan, part, placed, n);
        const uint64_t end = (uint64_t)part->offset + part->size;
        if (end > MAX_UNITS)
            return false;
        arena = end > arena ? end : arena;
        uint32_t at = n++;
        for (; at > 0 && part_at(plan, placed[at - 1])->offset > part->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = (uint16_t)next;
    }
    if (arena > SIZE_MAX / FEDGE_BLOCK_ALIGNMENT)
        return false;
    plan->arena = (size_t)arena * FEDGE_BLOCK_ALIGNMENT;
    return true;
}

static bool place_all(fedge_graph_plan *plan)
{
    for (uint32_t i = 0; i < plan->spec->num_layers; i++) {
        fedge_layer_plan *layer = &plan->layers[i];
        memset(layer->parts, 0, sizeof(layer->parts));
        layer->output_of = layer->gradient_of = (uint16_t)i;
        layer->output_read_backward = false;
    }
    plan_recomputing(plan);
    set_parts(plan);
    share_parts(plan);
    plan_half(plan);
    return place_parts(plan);
}

/* Uses masks if that takes fewer bytes. */
static bool lay_out(fedge_graph_plan *plan)
{
    const bool fits = place_all(plan);
    const size_t plain = plan->arena;
    if (!choose_masks(plan))
        return fits;
    if (place_all(plan) && (!fits || plan->arena < plain))
        return true;
    for (uint32_t i = 0; i < plan->spec->num_layers; i++)
        plan->layers[i].masked = false;
    return place_all(plan);
}

/* Checks that layer [index] accepts a whole part of a batch, and the remainder of the largest
 * batch.
 */
static fedge_status check_batches(const fedge_graph_plan *plan, uint32_t index, fedge_error *err)
{
    const fedge_layer_ops *ops = ops_of(plan, index);
    fedge_layer_run run;
    fedge_graph_plan_run(plan, index, &run);
    run.training = plan->options->training;
    const uint32_t left = plan->options->max_batch % run.batch;
    fedge_status status = !ops->check ? FEDGE_OK : ops->check(&run, err);
    if (status == FEDGE_OK && ops->check && left > 0) {
        run.batch = left;
        status = ops->check(&run, err);
    }
    return status == FEDGE_OK ? FEDGE_OK : fedge_layer_fail(plan->spec, index, status, err);
}

/* Names the layer with the largest array. */
static fedge_status too_big(const fedge_graph_plan *plan, fedge_error *err)
{
    const uint32_t batch = fedge_micro_batch(plan->options);
    uint32_t largest = 0;
    size_t max_size = 0;
    for (uint32_t i = 0; i < plan->spec->num_layers; i++) {
        for (int part = 0; part < FEDGE_PARTS; part++) {
            if (plan->layers[i].parts[part].size > max_size) {
                max_size = plan->layers[i].parts[part].size;
                largest = i;
            }
        }
    }
    const fedge_status status =
        fedge_fail(err, FEDGE_TOO_BIG,
                   "the model needs more bytes than can be planned, and this layer the most, for "
                   "batches of %u: %smake the layer smaller",
                   (unsigned)batch, batch > 1 ? "lower the batch size or " : "");
    return fedge_layer_fail(plan->spec, largest, status, err);
}

fedge_status fedge_graph_plan_make(fedge_graph_plan *plan, const fedge_model_spec *spec,
                                   const fedge_model_options *options, const fedge_kernels *kernels,
                                   fedge_error *err)
{
    plan->spec = spec;
    plan->options = options;
    plan->kernels = kernels;
    plan->num_values = plan->num_floats = plan->num_buffers = plan->num_trained = 0;
    FEDGE_TRY(survey(plan, err));
    FEDGE_TRY(fedge_shape_output(&plan->layers[spec->num_layers - 1].out, plan->num_trained, err));
    for (uint32_t i = 0; i + 1 < spec->num_layers; i++) {
        if (plan->layers[i].num_readers == 0) {
            const fedge_status status =
                fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                           "it is read by no other layer: name it in the inputs of a later one "
                           "or leave it out");
            return fedge_layer_fail(spec, i, status, err);
        }
    }
    for (uint32_t i = 0; i < spec->num_layers; i++)
        FEDGE_TRY(check_batches(plan, i, err));
    plan->layers[spec->num_layers - 1].num_readers++; /* the loss */
    absorb_rectifiers(plan);
    choose_fused_steps(plan);
    return lay_out(plan) ? FEDGE_OK : too_big(plan, err);
}
