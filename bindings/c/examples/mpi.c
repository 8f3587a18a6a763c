/*
 * Distributed encoding, repair and verification with MPI.
 *
 * Rank i holds data block i. It multiplies its own block by its column of the redundancy matrix; addition in GF(2^8) is
 * XOR, so MPI_Reduce with MPI_BXOR sums the products on the way, in log k steps. Redundancy block j is stored by rank j.
 * A repair is the same with other coefficients. To verify, ranks send signatures of 16 bytes, never blocks.
 *
 * Usage: mpirun -n K mpi M BYTES [CODE-FAMILY]
 *
 * Compares the results with those of one process, and prints what crossed the loopback interface, if nothing else uses
 * it: run it in a network namespace for that.
 */
#include <gabion.h>

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIGNATURE = GABION_SIGNATURE_COMPONENTS * sizeof(uint64_t) };

static int rank, ranks;

static void require(int condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "rank %d: %s; %s\n", rank, what, gabion_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static uint8_t *new_block(size_t len)
{
    uint8_t *block = calloc(len ? len : 1, 1);
    require(block != NULL, "no memory");
    return block;
}

/* Bytes that the loopback interface of this network namespace has sent, 0 where that is not known. */
static double sent_bytes(void)
{
    char line[512];
    double bytes = 0;
    FILE *file = fopen("/proc/net/dev", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, " lo: %*s %*s %*s %*s %*s %*s %*s %*s %lf", &bytes) == 1)
            break;
    if (file)
        fclose(file);
    return bytes;
}

/*
 * Sums the products of the ranks' blocks with `coefficients` (rows x ranks) on rank `root[row]`, which gets the sum in
 * `result`. Ranks whose coefficients are 0 take part with zeros.
 */
static void sum_products(int rows, const uint8_t *coefficients, const int *root, size_t len, const uint8_t *block,
                         uint8_t *result)
{
    uint8_t *own = malloc(rows), **products = malloc(rows * sizeof *products);
    require(own && products, "no memory");
    for (int row = 0; row < rows; row++) {
        own[row] = coefficients[row * ranks + rank];
        products[row] = new_block(len);
    }
    gabion_plan *plan;
    require(gabion_plan_new(rows, 1, own, 0, 1, &plan) == GABION_OK, "gabion_plan_new");
    require(gabion_plan_run(plan, len, &block, products) == GABION_OK, "gabion_plan_run");
    for (int row = 0; row < rows; row++)
        MPI_Reduce(products[row], result, (int)len, MPI_BYTE, MPI_BXOR, root[row], MPI_COMM_WORLD);
    gabion_plan_free(plan);
    for (int row = 0; row < rows; row++)
        free(products[row]);
    free(products);
    free(own);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    require(argc >= 3, "usage: mpi M BYTES [CODE-FAMILY]");
    const int k = ranks, m = atoi(argv[1]);
    const size_t len = strtoul(argv[2], NULL, 10);
    require(m >= 1 && m <= k && len > 0 && len < INT32_MAX, "1 <= M <= number of ranks, 0 < BYTES < 2 GiB");
    char code[64];
    snprintf(code, sizeof code, "%s%s%d+%d", argc > 3 ? argv[3] : "", argc > 3 ? ":" : "", k, m);

    gabion_codec *codec;
    gabion_signer *signer;
    require(gabion_codec_new(code, 1, &codec) == GABION_OK, "gabion_codec_new");
    require(gabion_signer_new(&signer) == GABION_OK, "gabion_signer_new");

    uint8_t *block = new_block(len), *redundancy = new_block(len);
    for (size_t at = 0; at < len; at++)
        block[at] = (uint8_t)(rank * 131 + at * 7 + (at >> 9));

    /* Encode: the coefficients of the redundancy columns from all data columns. */
    size_t *wanted = malloc(m * sizeof *wanted), *sources = malloc(k * sizeof *sources);
    int *root = malloc(m * sizeof *root);
    uint8_t *coefficients = malloc((size_t)m * k);
    require(wanted && sources && root && coefficients, "no memory");
    for (int j = 0; j < m; j++) {
        wanted[j] = k + j;
        root[j] = j;
    }
    for (int i = 0; i < k; i++)
        sources[i] = i;
    require(gabion_codec_coefficients(codec, m, wanted, sources, coefficients) == GABION_OK, "coefficients");
    MPI_Barrier(MPI_COMM_WORLD);
    double before = sent_bytes();
    MPI_Barrier(MPI_COMM_WORLD);
    sum_products(m, coefficients, root, len, block, redundancy);
    MPI_Barrier(MPI_COMM_WORLD);
    const double encoded = sent_bytes() - before;

    /* One process with all data must find the same. Not part of the work: a check of this program. */
    uint8_t *all = rank == 0 ? new_block(len * (k + m)) : NULL;
    MPI_Gather(block, (int)len, MPI_BYTE, all, (int)len, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        const uint8_t **data = malloc(k * sizeof *data);
        uint8_t **expected = malloc(m * sizeof *expected);
        require(data && expected, "no memory");
        for (int i = 0; i < k; i++)
            data[i] = all + i * len;
        for (int j = 0; j < m; j++)
            expected[j] = all + (k + j) * len;
        require(gabion_encode(codec, len, data, expected) == GABION_OK, "gabion_encode");
        free(data);
        free(expected);
    }
    int same = 1;
    for (int j = 0; j < m; j++) {
        uint8_t *found = j == rank ? redundancy : new_block(len);
        if (j != 0) {
            if (rank == j)
                MPI_Send(found, (int)len, MPI_BYTE, 0, j, MPI_COMM_WORLD);
            else if (rank == 0)
                MPI_Recv(found, (int)len, MPI_BYTE, j, j, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (rank == 0)
            same &= memcmp(found, all + (k + j) * len, len) == 0;
        if (found != redundancy)
            free(found);
    }
    require(same, "distributed redundancy differs from that of one process");

    /* Verify by signatures alone: the code applied to the signatures of data gives those of redundancy. */
    uint64_t own[2 * GABION_SIGNATURE_COMPONENTS] = { 0 };
    MPI_Barrier(MPI_COMM_WORLD);
    before = sent_bytes();
    MPI_Barrier(MPI_COMM_WORLD);
    for (int damage = 0; damage < 2; damage++) {
        if (damage && rank == k - 1)
            block[len / 2] ^= 1;
        require(gabion_sign(signer, len, block, own) == GABION_OK, "gabion_sign");
        if (rank < m)
            require(gabion_sign(signer, len, redundancy, own + GABION_SIGNATURE_COMPONENTS) == GABION_OK, "gabion_sign");
        uint8_t *signatures = new_block((size_t)2 * SIGNATURE * k);
        MPI_Gather(own, 2 * SIGNATURE, MPI_BYTE, signatures, 2 * SIGNATURE, MPI_BYTE, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            const uint8_t **stripe = malloc((k + m) * sizeof *stripe);
            require(stripe != NULL, "no memory");
            for (int i = 0; i < k; i++)
                stripe[i] = signatures + 2 * SIGNATURE * i;
            for (int j = 0; j < m; j++)
                stripe[k + j] = signatures + 2 * SIGNATURE * j + SIGNATURE;
            int32_t holds;
            require(gabion_verify(codec, SIGNATURE, stripe, &holds) == GABION_OK, "gabion_verify");
            require(holds == !damage, damage ? "a changed byte was not found" : "signatures do not match");
            free(stripe);
        }
        free(signatures);
        if (damage && rank == k - 1)
            block[len / 2] ^= 1;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double verified = (sent_bytes() - before) / 2;

    /* Repair: data block k-1 is lost; it comes from the others and redundancy block 0, which rank 0 adds itself. */
    uint8_t *kept = new_block(len), *row = malloc(k);
    require(row != NULL, "no memory");
    memcpy(kept, block, len);
    if (rank == k - 1)
        memset(block, 0, len);
    wanted[0] = k - 1;
    sources[k - 1] = k; /* in the place of the lost one */
    require(gabion_codec_coefficients(codec, 1, wanted, sources, row) == GABION_OK, "coefficients");
    const uint8_t of_redundancy = row[k - 1];
    row[k - 1] = 0;
    root[0] = k - 1;
    uint8_t *restored = new_block(len), *product = new_block(len);
    MPI_Barrier(MPI_COMM_WORLD);
    before = sent_bytes();
    MPI_Barrier(MPI_COMM_WORLD);
    {
        /* Two columns of rank 0 become one product. */
        const uint8_t pair[2] = { row[rank], rank == 0 ? of_redundancy : 0 };
        const uint8_t *inputs[2] = { block, redundancy };
        uint8_t *outputs[1] = { product };
        gabion_plan *plan;
        require(gabion_plan_new(1, 2, pair, 0, 1, &plan) == GABION_OK, "gabion_plan_new");
        require(gabion_plan_run(plan, len, inputs, outputs) == GABION_OK, "gabion_plan_run");
        gabion_plan_free(plan);
        MPI_Reduce(product, restored, (int)len, MPI_BYTE, MPI_BXOR, root[0], MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double repaired = sent_bytes() - before;
    if (rank == k - 1)
        require(memcmp(restored, kept, len) == 0, "the repaired block differs");

    if (rank == 0)
        printf("%s bytes %zu encode %.0f verify %.0f repair %.0f\n", gabion_codec_code(codec), len, encoded, verified,
               repaired);
    free(product);
    free(restored);
    free(row);
    free(kept);
    free(all);
    free(coefficients);
    free(root);
    free(sources);
    free(wanted);
    free(redundancy);
    free(block);
    gabion_signer_free(signer);
    gabion_codec_free(codec);
    MPI_Finalize();
    return 0;
}
