/* All functions of libgabion, with right and with wrong arguments. Compiled with sanitizers by the test command. */
#include "gabion.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                        \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, gabion_last_error());      \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

enum { K = 10, M = 4, ALL = K + M, MOST = 3 * 40000 };

static uint8_t *block[ALL], *copy[ALL];

static void fill(size_t len)
{
    for (int i = 0; i < ALL; i++) {
        /* Exactly as long as the blocks, so that the sanitizer sees every byte beyond. */
        block[i] = malloc(len ? len : 1);
        copy[i] = malloc(len ? len : 1);
        for (size_t j = 0; j < len; j++)
            block[i][j] = (uint8_t)(i * 31 + j * 7 + j / 253);
    }
}

static void clear(void)
{
    for (int i = 0; i < ALL; i++) {
        free(block[i]);
        free(copy[i]);
    }
}

static const uint8_t *const *reading(uint8_t **blocks)
{
    return (const uint8_t *const *)blocks;
}

static void codec_of(const char *code, size_t len)
{
    gabion_codec *codec;
    int32_t holds = 7;
    REQUIRE(gabion_codec_new(code, 1, &codec) == GABION_OK);
    REQUIRE(gabion_codec_k(codec) == K && gabion_codec_m(codec) == M);
    REQUIRE(len % gabion_codec_granule(codec) == 0);
    fill(len);
    REQUIRE(gabion_encode(codec, len, reading(block), block + K) == GABION_OK);
    REQUIRE(gabion_verify(codec, len, reading(block), &holds) == GABION_OK && holds == 1);
    for (int i = 0; i < ALL; i++)
        memcpy(copy[i], block[i], len);

    uint8_t present[ALL];
    memset(present, 1, sizeof present);
    const int lost[M] = { 0, 7, 10, 13 };
    for (int i = 0; i < M; i++) {
        present[lost[i]] = 0;
        memset(block[lost[i]], 0xee, len);
    }
    REQUIRE(gabion_reconstruct(codec, len, block, present) == GABION_OK);
    for (int i = 0; i < ALL; i++)
        REQUIRE(!memcmp(copy[i], block[i], len));
    present[1] = 0;
    REQUIRE(gabion_reconstruct(codec, len, block, present) == GABION_NOT_ENOUGH_BLOCKS);
    REQUIRE(!strcmp(gabion_last_error(), "9 blocks survive, 10 are needed"));

    if (len) {
        memset(copy[3], 0x5a, len);
        REQUIRE(gabion_update(codec, 3, len, block[3], copy[3], block + K) == GABION_OK);
        memcpy(block[3], copy[3], len);
        REQUIRE(gabion_verify(codec, len, reading(block), &holds) == GABION_OK && holds == 1);
        block[12][len - 1] ^= 1;
        REQUIRE(gabion_verify(codec, len, reading(block), &holds) == GABION_OK && holds == 0);
        REQUIRE(gabion_update(codec, K, len, block[3], copy[3], block + K) == GABION_INVALID_ARGUMENT);
    }
    clear();
    gabion_codec_free(codec);
}

/* Arguments that the library refuses; outputs stay as they were. */
static void refused(void)
{
    gabion_codec *codec = (gabion_codec *)1;
    REQUIRE(gabion_codec_new("10+x", 1, &codec) == GABION_INVALID_CODE && codec == NULL);
    REQUIRE(strstr(gabion_last_error(), "'10+x' is not a code"));
    REQUIRE(gabion_codec_new("rs-isal:200+50", 1, &codec) == GABION_INVALID_CODE);
    REQUIRE(gabion_codec_new(NULL, 1, &codec) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_codec_new("10+4", 1, NULL) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_codec_new("10+4", 1 << 20, &codec) == GABION_UNAVAILABLE && codec == NULL);
    REQUIRE(gabion_codec_new("10+4", 2, &codec) == GABION_OK);
    REQUIRE(!strcmp(gabion_codec_code(codec), "subspace:10+4:w8"));
    fill(64);
    REQUIRE(gabion_encode(NULL, 64, reading(block), block + K) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_encode(codec, 64, NULL, block + K) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_encode(codec, 64, reading(block), NULL) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_encode(codec, SIZE_MAX, reading(block), block + K) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_encode(codec, 64, reading(block), block) == GABION_INVALID_ARGUMENT);
    REQUIRE(!strcmp(gabion_last_error(), "output 0 overlaps another block"));
    uint8_t *saved = block[12];
    block[12] = block[11] + 63;
    REQUIRE(gabion_encode(codec, 64, reading(block), block + K) == GABION_INVALID_ARGUMENT);
    block[12] = NULL;
    REQUIRE(gabion_encode(codec, 64, reading(block), block + K) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_verify(codec, 64, reading(block), NULL) == GABION_INVALID_ARGUMENT);
    block[12] = saved;
    REQUIRE(block[10][5] == (uint8_t)(310 + 35));
    REQUIRE(gabion_encode(codec, 0, reading(block), block + K) == GABION_OK);
    clear();
    gabion_codec_free(codec);
    gabion_codec_free(NULL);
    gabion_plan_free(NULL);
    gabion_signer_free(NULL);
    REQUIRE(gabion_codec_k(NULL) == 0 && gabion_plan_inputs(NULL) == 0 && gabion_plan_input(NULL, 0) == SIZE_MAX);
}

static void plans(void)
{
    gabion_plan *plan;
    const uint8_t matrix[] = { 1, 1, 1, 2, 4, 8 };
    fill(100);
    REQUIRE(gabion_plan_new(2, 3, matrix, 0, 1, &plan) == GABION_OK);
    REQUIRE(gabion_plan_inputs(plan) == 3 && gabion_plan_outputs(plan) == 2 && gabion_plan_input(plan, 2) == 2);
    REQUIRE(gabion_plan_run(plan, 100, reading(block), block + 3) == GABION_OK);
    gabion_plan_free(plan);
    for (int j = 0; j < 100; j++)
        REQUIRE(block[3][j] == (block[0][j] ^ block[1][j] ^ block[2][j]));
    /* The same added is zero. */
    REQUIRE(gabion_plan_new(2, 3, matrix, 1, 1, &plan) == GABION_OK);
    REQUIRE(gabion_plan_run(plan, 100, reading(block), block + 3) == GABION_OK);
    gabion_plan_free(plan);
    for (int j = 0; j < 100; j++)
        REQUIRE(block[3][j] == 0 && block[4][j] == 0);
    REQUIRE(gabion_plan_new(0, 3, matrix, 0, 1, &plan) == GABION_INVALID_ARGUMENT && plan == NULL);
    REQUIRE(gabion_plan_new(SIZE_MAX, SIZE_MAX, matrix, 0, 1, &plan) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_plan_new(2, 3, NULL, 0, 1, &plan) == GABION_INVALID_ARGUMENT);
    clear();
}

/* Every reconstruction of 8 data columns from what the three generations made. */
static void raidz(void)
{
    const int parities[] = { 1, 1, 1, 2, 2, 2, 3 };
    const size_t lost[] = { 1, 4, 6 };
    gabion_plan *plan;
    fill(4096);
    for (int operation = GABION_RAIDZ_GEN_P; operation <= GABION_RAIDZ_GEN_PQR; operation++) {
        REQUIRE(gabion_plan_raidz(8, operation, NULL, 1, &plan) == GABION_OK);
        REQUIRE(gabion_plan_outputs(plan) == (size_t)operation + 1);
        REQUIRE(gabion_plan_run(plan, 4096, reading(block), block + 8) == GABION_OK);
        gabion_plan_free(plan);
        for (int j = 0; j < 4096; j++) {
            uint8_t p = 0;
            for (int i = 0; i < 8; i++)
                p ^= block[i][j];
            REQUIRE(block[8][j] == p);
        }
    }
    for (int operation = GABION_RAIDZ_REC_P; operation <= GABION_RAIDZ_REC_PQR; operation++) {
        const uint8_t *inputs[ALL];
        REQUIRE(gabion_plan_raidz(8, operation, lost, 1, &plan) == GABION_OK);
        for (size_t i = 0; i < gabion_plan_inputs(plan); i++)
            inputs[i] = block[gabion_plan_input(plan, i)];
        REQUIRE(gabion_plan_outputs(plan) == (size_t)parities[operation - GABION_RAIDZ_REC_P]);
        REQUIRE(gabion_plan_run(plan, 4096, inputs, copy) == GABION_OK);
        for (size_t i = 0; i < gabion_plan_outputs(plan); i++)
            REQUIRE(!memcmp(copy[i], block[lost[i]], 4096));
        gabion_plan_free(plan);
    }
    const size_t same[] = { 1, 1 }, parity[] = { 8 };
    REQUIRE(gabion_plan_raidz(8, GABION_RAIDZ_REC_PQ, same, 1, &plan) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_plan_raidz(8, GABION_RAIDZ_REC_P, parity, 1, &plan) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_plan_raidz(8, GABION_RAIDZ_REC_P, NULL, 1, &plan) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_plan_raidz(8, 10, lost, 1, &plan) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_plan_raidz(8, -1, lost, 1, &plan) != GABION_OK && plan == NULL);
    clear();
}

static void signatures(void)
{
    gabion_signer *signer;
    uint64_t one[GABION_SIGNATURE_COMPONENTS], other[GABION_SIGNATURE_COMPONENTS];
    REQUIRE(gabion_signer_new(&signer) == GABION_OK);
    fill(777);
    REQUIRE(gabion_sign(signer, 777, block[0], one) == GABION_OK);
    REQUIRE(gabion_sign(signer, 777, block[0], other) == GABION_OK && !memcmp(one, other, sizeof one));
    block[0][776] ^= 1;
    REQUIRE(gabion_sign(signer, 777, block[0], other) == GABION_OK && memcmp(one, other, sizeof one));
    REQUIRE(gabion_sign(signer, 777, NULL, other) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_sign(signer, 777, block[0], NULL) == GABION_INVALID_ARGUMENT);
    gabion_signer_free(signer);
    clear();
}

/* Products byte by byte. */
static uint8_t times(uint8_t a, uint8_t b)
{
    uint8_t product = 0;
    for (; b; b >>= 1, a = (uint8_t)(a << 1 ^ (a & 0x80 ? 0x1d : 0)))
        product ^= b & 1 ? a : 0;
    return product;
}

static void coefficients(void)
{
    gabion_codec *codec;
    uint8_t found[M * K], zeros[1] = { 0 };
    size_t wanted[M] = { 2, 11, 7, 10 }, sources[K] = { 13, 0, 1, 12, 3, 4, 5, 6, 8, 9 };
    REQUIRE(gabion_codec_new("10+4", 1, &codec) == GABION_OK);
    REQUIRE(gabion_codec_coefficients(codec, M, wanted, sources, found) == GABION_OK);
    fill(50);
    REQUIRE(gabion_encode(codec, 50, reading(block), block + K) == GABION_OK);
    for (int row = 0; row < M; row++)
        for (int at = 0; at < 50; at++) {
            uint8_t sum = 0;
            for (int j = 0; j < K; j++)
                sum ^= times(found[row * K + j], block[sources[j]][at]);
            REQUIRE(sum == block[wanted[row]][at]);
        }
    clear();
    wanted[0] = 0;
    REQUIRE(gabion_codec_coefficients(codec, M, wanted, sources, found) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_codec_coefficients(codec, ALL + 1, wanted, sources, found) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_codec_coefficients(codec, 1, wanted, NULL, found) == GABION_INVALID_ARGUMENT);
    REQUIRE(gabion_codec_coefficients(codec, 1, wanted + 1, sources, NULL) == GABION_INVALID_ARGUMENT);
    wanted[0] = 99;
    REQUIRE(gabion_codec_coefficients(codec, 1, wanted, sources, found) == GABION_INVALID_ARGUMENT);
    gabion_codec_free(codec);
    REQUIRE(gabion_codec_new("10+4:w16", 1, &codec) == GABION_OK);
    REQUIRE(gabion_codec_coefficients(codec, 1, wanted + 1, sources, zeros) == GABION_INVALID_ARGUMENT);
    gabion_codec_free(codec);
}

/* Rows as the program raidz_test of OpenZFS has them: numbers of columns, sizes with shorter columns at the end, all
 * losses of one to three columns. Parity is compared with Horner's scheme, byte by byte. */
static void raidz_row(size_t columns, size_t size, size_t short_by, size_t short_columns)
{
    static const int uses[7][3] = { { 0 }, { 1 }, { 2 }, { 0, 1 }, { 0, 2 }, { 1, 2 }, { 0, 1, 2 } };
    static const size_t used[7] = { 1, 1, 1, 2, 2, 2, 3 };
    const gabion_raidz_ops *ops = gabion_raidz_get_ops();
    size_t sizes[16];
    uint8_t *data[16], *kept[16], *parity[3], *unused[3];
    for (size_t i = 0; i < columns; i++) {
        sizes[i] = i >= columns - short_columns ? size - short_by : size;
        /* malloc(0) may be a null pointer. */
        data[i] = malloc(sizes[i] + !sizes[i]);
        kept[i] = malloc(sizes[i] + !sizes[i]);
        for (size_t j = 0; j < sizes[i]; j++)
            kept[i][j] = data[i][j] = (uint8_t)(rand() >> 3);
    }
    for (int i = 0; i < 3; i++)
        parity[i] = malloc(size);
    const gabion_raidz_row row = { columns, sizes, data, size, parity };
    for (int count = 1; count <= 3; count++) {
        for (int i = 0; i < 3; i++)
            memset(parity[i], 0xcc, size);
        REQUIRE(ops->gen[count - 1](&row) == GABION_OK);
        for (int i = 0; i < 3; i++)
            for (size_t j = 0; j < size; j++) {
                uint8_t sum = 0;
                for (size_t c = 0; c < columns; c++)
                    sum = times(sum, (uint8_t)(1 << i)) ^ (j < sizes[c] ? data[c][j] : 0);
                REQUIRE(parity[i][j] == (i < count ? sum : 0xcc));
            }
    }
    for (int op = 0; op < 7; op++)
        for (size_t a = 0; a < columns; a++)
            for (size_t b = used[op] > 1 ? a + 1 : a; b < columns; b++) {
                for (size_t c = used[op] > 2 ? b + 1 : b; c < columns; c++) {
                    const size_t lost[3] = { a, b, c };
                    for (size_t i = 0; i < used[op]; i++)
                        memset(data[lost[i]], 0xee, sizes[lost[i]]);
                    /* Parities that the operation does not use are not touched. */
                    for (int i = 0; i < 3; i++) {
                        unused[i] = parity[i];
                        int is_used = 0;
                        for (size_t u = 0; u < used[op]; u++)
                            is_used |= uses[op][u] == i;
                        if (!is_used)
                            parity[i] = NULL;
                    }
                    REQUIRE(ops->rec[op](&row, lost) == GABION_OK);
                    memcpy(parity, unused, sizeof parity);
                    for (size_t i = 0; i < columns; i++)
                        REQUIRE(!memcmp(data[i], kept[i], sizes[i]));
                    if (used[op] < 3)
                        break;
                }
                if (used[op] < 2)
                    break;
            }
    for (size_t i = 0; i < columns; i++) {
        free(data[i]);
        free(kept[i]);
    }
    for (int i = 0; i < 3; i++)
        free(parity[i]);
}

static void raidz_rows(void)
{
    for (size_t columns = 3; columns <= 9; columns += 3)
        for (size_t size = 512; size <= 8192; size *= 4) {
            raidz_row(columns, size, 0, 0);
            raidz_row(columns, size, 512, columns - 1);
            raidz_row(columns, size, 17, 1);
        }
    raidz_row(1, 64, 0, 0);
    raidz_row(2, 64, 64, 2);
    const gabion_raidz_ops *ops = gabion_raidz_get_ops();
    uint8_t bytes[3][64], *data[2] = { bytes[0], bytes[1] }, *parity[1] = { bytes[2] };
    size_t sizes[2] = { 64, 65 }, lost[2] = { 0, 0 };
    gabion_raidz_row row = { 2, sizes, data, 64, parity };
    REQUIRE(!strcmp(ops->name, "gabion"));
    REQUIRE(ops->gen[0](NULL) == GABION_INVALID_ARGUMENT);
    REQUIRE(ops->gen[0](&row) == GABION_INVALID_ARGUMENT && strstr(gabion_last_error(), "column 1 has 65 bytes"));
    sizes[1] = 64;
    data[1] = data[0];
    parity[0] = data[0];
    REQUIRE(ops->gen[0](&row) == GABION_INVALID_ARGUMENT);
    parity[0] = NULL;
    REQUIRE(ops->gen[0](&row) == GABION_INVALID_ARGUMENT);
    REQUIRE(ops->rec[3](&row, lost) == GABION_INVALID_ARGUMENT);
    REQUIRE(ops->rec[0](&row, NULL) == GABION_INVALID_ARGUMENT);
    row.columns = 0;
    REQUIRE(ops->gen[0](&row) != GABION_OK);
    row.columns = 10000;
    REQUIRE(ops->gen[2](&row) != GABION_OK);
}

static gabion_codec *shared;

/* One codec in several threads; each has its own last error. */
static void *thread(void *number)
{
    uint8_t *own[ALL], *wanted[M];
    size_t len = 4096;
    for (int i = 0; i < ALL; i++) {
        own[i] = malloc(len);
        memset(own[i], (int)(size_t)number + i, len);
    }
    for (int i = 0; i < M; i++)
        wanted[i] = malloc(len);
    REQUIRE(!*gabion_last_error());
    for (int round = 0; round < 200; round++) {
        REQUIRE(gabion_encode(shared, len, reading(own), own + K) == GABION_OK);
        uint8_t present[ALL];
        memset(present, 1, sizeof present);
        for (int i = 0; i < M; i++) {
            int lost = (round + (int)(size_t)number + 3 * i) % ALL;
            present[lost] = 0;
            memcpy(wanted[i], own[lost], len);
            memset(own[lost], 0, len);
        }
        REQUIRE(gabion_reconstruct(shared, len, own, present) == GABION_OK);
        for (int i = 0; i < M; i++)
            REQUIRE(!memcmp(wanted[i], own[(round + (int)(size_t)number + 3 * i) % ALL], len));
    }
    REQUIRE(gabion_encode(NULL, len, reading(own), own + K) == GABION_INVALID_ARGUMENT && *gabion_last_error());
    for (int i = 0; i < ALL; i++)
        free(own[i]);
    for (int i = 0; i < M; i++)
        free(wanted[i]);
    return NULL;
}

int main(void)
{
    REQUIRE(gabion_abi_version() == GABION_ABI_VERSION && *gabion_version());
    for (int status = -1; status <= 6; status++)
        REQUIRE(*gabion_status_text(status));
    const size_t lengths[] = { 0, 1, 63, 4096, 40000 };
    for (int i = 0; i < 5; i++)
        codec_of("10+4", lengths[i]);
    codec_of("10+4:w16", 4098);
    codec_of("cauchy-isal:10+4", 1000);
    refused();
    plans();
    coefficients();
    raidz();
    raidz_rows();
    signatures();
    pthread_t threads[4];
    REQUIRE(gabion_codec_new("10+4", 1, &shared) == GABION_OK);
    for (size_t i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, thread, (void *)i) == 0);
    for (size_t i = 0; i < 4; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    gabion_codec_free(shared);
    printf("good\n");
    return 0;
}
