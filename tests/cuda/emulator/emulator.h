/* How tests rule the emulated GPUs. tests/gpu/real_gpus.c answers for real ones, so that the same
 * tests run there.
 *
 * Without emulator_start, the first call reads the environment variable FEDGE_EMULATOR, such as
 * "gpus=2 order=2 seed=7 memory=1048576 fail=120 error=214 at=copy old=1 no-code=1 no-nccl=1":
 * names as in the struct below. With FEDGE_EMULATOR_MARK, a file that is made then, each process
 * but the first reads FEDGE_EMULATOR_AGAIN instead.
 */
#ifndef FEDGE_EMULATOR_H
#define FEDGE_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EMULATOR_MAX_GPUS = 8 };
/* What events measure: a copied byte takes 1 ns, a kernel or a collective so many. */
enum { EMULATOR_LAUNCH_NS = 1000 };
enum { EMULATOR_HANGS = 10000, EMULATOR_DIES };

/* When work on a stream is done: at once; when somebody waits for it; at any time between. */
typedef enum emulator_order { EMULATOR_EAGER, EMULATOR_LAZY, EMULATOR_RANDOM } emulator_order;

typedef struct emulator_config {
    uint32_t num_gpus; /* 0: none is found */
    emulator_order order;
    uint64_t seed;            /* of the order of threads, blocks and streams */
    size_t memory_bytes;      /* of each GPU; 0: 248 MiB, and no more than that can be taken */
    bool unprotected;         /* the host may read GPUs' memory: long tests are faster */
    bool no_driver;           /* every call says so */
    int driver_version;       /* of one that is too old, with no_driver: 12040; 0: there is none */
    bool no_nccl;             /* libnccl cannot be loaded */
    int nccl_version;         /* 0: 22809 */
    uint64_t fail_call;       /* this call of runtime or NCCL fails, from 1; 0: none */
    const char *fail_at;      /* only calls of this name are counted: "allocation", "copy" to a GPU,
                                 "read" from one, "choosing" it, "counting" them, "memory" (that it
                                 has), a kernel's or NCCL's function; NULL: all */
    int fail_error;           /* with this cudaError; 0: ECC. Sticky ones stay on that GPU.
                                 EMULATOR_HANGS: it never returns; EMULATOR_DIES: the process is
                                 killed */
    uint64_t hang_collective; /* this collective never ends, from 1; 0: none */
    bool nccl_async_error;    /* and ncclCommGetAsyncError tells of it */
    bool old_chip;            /* of compute capability 7.5, else 9.0 */
    bool no_code;             /* no kernel is compiled for the chip */
    bool joins;               /* NCCL is to be there */
    bool watched;             /* real GPUs are not: their clock and queues cannot be looked at */
} emulator_config;

/* Begins anew. Everything of before must have been freed. False: real GPUs are not so (too few, or
 * they would have to fail), and what needs it is not run. */
bool emulator_start(const emulator_config *config);
uint32_t emulator_real_gpus(void); /* 0: emulated ones, as many as are asked for */
uint64_t emulator_calls(void);     /* of runtime and NCCL since the start */
uint64_t emulator_counted(void);   /* those of fail_at */
bool emulator_failed(void);        /* the call that was to fail has come */
uint64_t emulator_collectives(void);
uint32_t emulator_pending(void);    /* pieces of work on streams that are not done */
uint32_t emulator_leaks(void);      /* memory, streams, events, communicators that are not freed */
const char *emulator_fault(void);   /* the first misuse that was seen; NULL: none */
uint64_t emulator_races_seen(void); /* accesses that the race detector has looked at */

#endif
