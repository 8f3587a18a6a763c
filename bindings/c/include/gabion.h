/*
 * libgabion: erasure codes over GF(2^w), compiled at run time for the CPU.
 *
 * Functions that can fail return a gabion_status; 0 is success. gabion_last_error() describes the last failure of the
 * calling thread. Nothing is written to blocks when a function fails. All objects may be used by any number of threads
 * at once; only freeing one needs that no other thread uses it. Objects do not depend on those that they were made of,
 * which can be freed at once. Freeing NULL does nothing.
 *
 * A null pointer, overlapping blocks and numbers out of range are refused. Lengths cannot be checked: every block must
 * have `len` bytes.
 */
#ifndef GABION_H
#define GABION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a function changes its meaning or goes away; the library is then libgabion.so.N. */
#define GABION_ABI_VERSION 1

/* Components of a signature. */
#define GABION_SIGNATURE_COMPONENTS 2

typedef enum gabion_status {
    GABION_OK = 0,
    GABION_INVALID_ARGUMENT = 1,  /* null pointer, overlap, column or length that does not fit */
    GABION_INVALID_CODE = 2,      /* identity of a code that does not exist */
    GABION_NOT_ENOUGH_BLOCKS = 3, /* fewer than k blocks are left */
    GABION_UNAVAILABLE = 4,       /* threads or kernels that this machine does not provide */
    GABION_INTERNAL = 5           /* a defect of this library; the content of outputs is unknown */
} gabion_status;

/* The ten operations of RAID-Z: parities are generated, or one, two or three blocks reconstructed from the parities
 * named. */
typedef enum gabion_raidz {
    GABION_RAIDZ_GEN_P = 0,
    GABION_RAIDZ_GEN_PQ = 1,
    GABION_RAIDZ_GEN_PQR = 2,
    GABION_RAIDZ_REC_P = 3,
    GABION_RAIDZ_REC_Q = 4,
    GABION_RAIDZ_REC_R = 5,
    GABION_RAIDZ_REC_PQ = 6,
    GABION_RAIDZ_REC_PR = 7,
    GABION_RAIDZ_REC_QR = 8,
    GABION_RAIDZ_REC_PQR = 9
} gabion_raidz;

typedef struct gabion_codec gabion_codec;   /* encoder and decoder of one code */
typedef struct gabion_plan gabion_plan;     /* a matrix, compiled */
typedef struct gabion_signer gabion_signer; /* computes signatures */

/* The ABI of the library that is loaded. */
uint32_t gabion_abi_version(void);
/* Its version, for people. */
const char *gabion_version(void);
/* A sentence about a status. */
const char *gabion_status_text(int32_t status);
/* The last failure of this thread, until its next one; an empty string if there was none. */
const char *gabion_last_error(void);

/*
 * A codec for a code such as "10+4", "cauchy-isal:10+4" or "60000+5536:w16", on `threads` threads; 1 is the caller's
 * own, 0 as many as the process may run at once.
 */
int32_t gabion_codec_new(const char *code, size_t threads, gabion_codec **codec);
void gabion_codec_free(gabion_codec *codec);
size_t gabion_codec_k(const gabion_codec *codec);
size_t gabion_codec_m(const gabion_codec *codec);
/* The unit in bytes that all lengths are a multiple of: 1 for codes over GF(2^8). */
size_t gabion_codec_granule(const gabion_codec *codec);
/* The full identity of the code, to be stored with the blocks; it lives as long as the codec. */
const char *gabion_codec_code(const gabion_codec *codec);

/* Computes m redundancy blocks from k data blocks. */
int32_t gabion_encode(const gabion_codec *codec, size_t len, const uint8_t *const *data, uint8_t *const *redundancy);
/* Computes the blocks for which `present` is 0, of k + m, from the others. */
int32_t gabion_reconstruct(const gabion_codec *codec, size_t len, uint8_t *const *blocks, const uint8_t *present);
/* Sets `*holds` to 1 if the redundancy of k + m blocks is that of their data, otherwise to 0. */
int32_t gabion_verify(const gabion_codec *codec, size_t len, const uint8_t *const *blocks, int32_t *holds);
/* Updates m redundancy blocks after the data block `column` changed. */
int32_t gabion_update(const gabion_codec *codec, size_t column, size_t len, const uint8_t *before,
                      const uint8_t *after, uint8_t *const *redundancy);

/*
 * Writes the coefficients over GF(2^8) of `count` columns `wanted` from the k columns `sources`, row by row: output i is
 * the sum of coefficient (i, j) times source j. Several processes or hosts can compute parts of a stripe with them.
 */
int32_t gabion_codec_coefficients(const gabion_codec *codec, size_t count, const size_t *wanted,
                                  const size_t *sources, uint8_t *coefficients);

/* A plan for a matrix over GF(2^8), row by row: output i is the sum of coefficient (i, j) times input j. If `add` is
 * not 0 it is added to the output. */
int32_t gabion_plan_new(size_t rows, size_t columns, const uint8_t *coefficients, int32_t add, size_t threads,
                        gabion_plan **plan);
/* A plan for an operation of RAID-Z with k data columns. Reconstructions name as many lost data columns as they use
 * parities; gabion_plan_input() tells which columns they read. */
int32_t gabion_plan_raidz(size_t k, int32_t operation, const size_t *lost, size_t threads, gabion_plan **plan);
void gabion_plan_free(gabion_plan *plan);
size_t gabion_plan_inputs(const gabion_plan *plan);
size_t gabion_plan_outputs(const gabion_plan *plan);
/* The column of input `index` of the plan; SIZE_MAX beyond the last. */
size_t gabion_plan_input(const gabion_plan *plan, size_t index);
int32_t gabion_plan_run(const gabion_plan *plan, size_t len, const uint8_t *const *inputs, uint8_t *const *outputs);

/* A row of RAID-Z: data columns, which may be shorter than the parity, and up to three parities P, Q, R. */
typedef struct gabion_raidz_row {
    size_t columns;
    const size_t *sizes;    /* bytes of each data column; it counts as if zeros followed */
    uint8_t *const *data;
    size_t size;            /* bytes of each parity */
    uint8_t *const *parity; /* as many as the operation uses: P, P and Q, or all three */
} gabion_raidz_row;

/* The ten operations in the shape of OpenZFS. `gen` writes one, two or three parities. `rec`, by the order of
 * gabion_raidz from GABION_RAIDZ_REC_P on, writes as many `lost` data columns as the operation uses parities. Each
 * returns a gabion_status. Compiled plans are kept for the process. */
typedef struct gabion_raidz_ops {
    const char *name;
    int32_t (*gen[3])(const gabion_raidz_row *row);
    int32_t (*rec[7])(const gabion_raidz_row *row, const size_t *lost);
} gabion_raidz_ops;

const gabion_raidz_ops *gabion_raidz_get_ops(void);

/* Signatures of two components of 64 bits, which obey the linear law for codes over GF(2^8). */
int32_t gabion_signer_new(gabion_signer **signer);
void gabion_signer_free(gabion_signer *signer);
/* Writes GABION_SIGNATURE_COMPONENTS numbers. */
int32_t gabion_sign(const gabion_signer *signer, size_t len, const uint8_t *block, uint64_t *signature);

#ifdef __cplusplus
}
#endif

#endif
