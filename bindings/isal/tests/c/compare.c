/*
 * Calls every exported function of one library and of a reference with the same random arguments and compares all
 * bytes. The reference is a library made of ISA-L's portable sources, which have the functions named `_base` only; its
 * vector functions give the same bytes by ISA-L's own tests.
 *
 * compare LIBRARY REFERENCE ROUNDS
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*init_t)(int, int, unsigned char *, unsigned char *);
typedef void (*expand_t)(unsigned char, unsigned char *);
typedef void (*encode_t)(int, int, int, unsigned char *, unsigned char **, unsigned char **);
typedef void (*update_t)(int, int, int, int, unsigned char *, unsigned char *, unsigned char **);
typedef void (*dot_t)(int, int, unsigned char *, unsigned char **, unsigned char *);
typedef void (*dots_t)(int, int, unsigned char *, unsigned char **, unsigned char **);
typedef void (*mad_t)(int, int, int, unsigned char *, unsigned char *, unsigned char *);
typedef void (*mads_t)(int, int, int, unsigned char *, unsigned char *, unsigned char **);
typedef int (*multiply_t)(int, unsigned char *, void *, void *);
typedef int (*raid_t)(int, int, void **);
typedef void (*generate_t)(unsigned char *, int, int);
typedef int (*invert_t)(unsigned char *, unsigned char *, int);
typedef unsigned char (*two_t)(unsigned char, unsigned char);
typedef unsigned char (*one_t)(unsigned char);

enum { MOST = 40, ROWS = 14, LONGEST = 5000, SLACK = 64, STRIDE = LONGEST + 2 * SLACK };

static void *library, *reference;
static const char *current = "start";
static uint64_t state = 0x2545f4914f6cdd1dull;

static uint64_t draw(uint64_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % limit;
}

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", current);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    exit(1);
}

static void *symbol(void *from, const char *name)
{
    void *found = dlsym(from, name);
    if (!found)
        fail("no symbol %s in %s", name, from == library ? "the library" : "the reference");
    return found;
}

static unsigned char *data, *ours, *theirs, coefficients[MOST * ROWS], tables[32 * MOST * ROWS];
static unsigned char *sources[MOST], *to[ROWS], *expected[ROWS];
static int k, rows, len;

/* Shape, coefficients, tables, and blocks that begin anywhere, with guard bytes around outputs. */
static void arrange(int most_rows)
{
    k = 1 + draw(draw(4) ? 12 : MOST);
    rows = 1 + draw(most_rows);
    len = draw(3) ? (int)draw(200) : (int)draw(LONGEST);
    for (int i = 0; i < k * rows; i++)
        coefficients[i] = draw(5) ? draw(256) : draw(2);
    const char *forms[] = { "ec_init_tables", "ec_init_tables_base", "ec_init_tables_gfni" };
    ((init_t)symbol(library, forms[draw(3)]))(k, rows, coefficients, tables);
    for (int i = 0; i < MOST * STRIDE; i++)
        data[i] = draw(256);
    for (int i = 0; i < ROWS * STRIDE; i++)
        ours[i] = theirs[i] = draw(256);
    for (int j = 0; j < k; j++)
        sources[j] = data + j * STRIDE + draw(SLACK);
    for (int i = 0; i < ROWS; i++) {
        int at = i * STRIDE + draw(SLACK);
        to[i] = ours + at;
        expected[i] = theirs + at;
    }
}

/* The reference reads products; the tables may be bit matrices. */
static unsigned char *reference_tables(void)
{
    static unsigned char expanded[32 * MOST * ROWS];
    ((init_t)symbol(reference, "ec_init_tables_base"))(k, rows, coefficients, expanded);
    return expanded;
}

static void same(void)
{
    for (int i = 0; i < ROWS * STRIDE; i++)
        if (ours[i] != theirs[i])
            fail("k %d, rows %d, length %d: byte %d of output %d differs", k, rows, len, i % STRIDE, i / STRIDE);
}

static void check_tables(void)
{
    current = "tables";
    arrange(ROWS);
    static unsigned char one[32 * MOST * ROWS];
    ((init_t)symbol(library, "ec_init_tables"))(k, rows, coefficients, one);
    if (memcmp(one, reference_tables(), 32 * k * rows))
        fail("ec_init_tables differs");
    const char *names[] = { "gf_vect_mul_init", "gf_vect_mul_init_base" };
    for (int i = 0; i < 2; i++) {
        ((expand_t)symbol(library, names[i]))(coefficients[0], one);
        if (memcmp(one, reference_tables(), 32))
            fail("%s differs", names[i]);
    }
}

static void check_encode(const char *name, int is_base)
{
    current = name;
    arrange(ROWS);
    unsigned char *products = reference_tables();
    ((encode_t)symbol(library, name))(len, k, rows, is_base ? products : tables, sources, to);
    ((encode_t)symbol(reference, "ec_encode_data_base"))(len, k, rows, products, sources, expected);
    same();
}

static void check_update(const char *name, int is_base)
{
    current = name;
    arrange(ROWS);
    int column = draw(k);
    unsigned char *products = reference_tables();
    ((update_t)symbol(library, name))(len, k, rows, column, is_base ? products : tables, sources[column], to);
    ((update_t)symbol(reference, "ec_encode_data_update_base"))(len, k, rows, column, products, sources[column],
                                                               expected);
    same();
}

static void check_dot(const char *name, int count, int is_base)
{
    current = name;
    do
        arrange(6);
    while (rows != count);
    unsigned char *products = reference_tables(), *given = is_base ? products : tables;
    if (count == 1)
        ((dot_t)symbol(library, name))(len, k, given, sources, to[0]);
    else
        ((dots_t)symbol(library, name))(len, k, given, sources, to);
    ((encode_t)symbol(reference, "ec_encode_data_base"))(len, k, count, products, sources, expected);
    same();
}

static void check_mad(const char *name, int count, int is_base)
{
    current = name;
    do
        arrange(6);
    while (rows != count);
    int column = draw(k);
    unsigned char *products = reference_tables(), *given = is_base ? products : tables;
    if (count == 1)
        ((mad_t)symbol(library, name))(len, k, column, given, sources[column], to[0]);
    else
        ((mads_t)symbol(library, name))(len, k, column, given, sources[column], to);
    ((update_t)symbol(reference, "ec_encode_data_update_base"))(len, k, count, column, products, sources[column],
                                                               expected);
    same();
}

static void check_multiply(const char *name, int is_base)
{
    current = name;
    arrange(1);
    if (draw(2))
        len = len / 32 * 32;
    unsigned char *products = reference_tables();
    int result = ((multiply_t)symbol(library, name))(len, is_base ? products : tables, sources[0], to[0]);
    int wanted = ((multiply_t)symbol(reference, "gf_vect_mul_base"))(len, products, sources[0], expected[0]);
    if ((result == 0) != (wanted == 0) || (is_base && result != wanted))
        fail("length %d returns %d, not %d", len, result, wanted);
    same();
}

/* `unit`: the function fails for other lengths, where the portable one does not. */
static void check_raid(const char *name, const char *base, int parity, int unit, int checks)
{
    current = name;
    arrange(ROWS);
    int vects = draw(k + 4);
    if (unit && draw(4))
        len = len / unit * unit;
    if (vects > parity && vects - parity > k)
        vects = k + parity;
    void *mine[MOST + 4], *other[MOST + 4];
    for (int i = 0; i < vects; i++) {
        int outputs_from = vects - parity;
        mine[i] = i < outputs_from ? sources[i] : to[i < outputs_from ? 0 : i - outputs_from];
        other[i] = i < outputs_from ? sources[i] : expected[i < outputs_from ? 0 : i - outputs_from];
    }
    if (checks && vects > parity && draw(3)) {
        /* Right parity first, then perhaps one wrong bit. */
        const char *gen = parity == 1 ? "xor_gen_base" : "pq_gen_base";
        ((raid_t)symbol(reference, gen))(vects, len, mine);
        ((raid_t)symbol(reference, gen))(vects, len, other);
        if (len && draw(2)) {
            int block = draw(vects), at = draw(len), bit = 1 << draw(8);
            ((unsigned char *)mine[block])[at] ^= bit;
            if (mine[block] != other[block])
                ((unsigned char *)other[block])[at] ^= bit;
        }
    }
    int result = ((raid_t)symbol(library, name))(vects, len, mine);
    if (unit && len % unit) {
        if (result == 0)
            fail("%d vectors, length %d returns 0", vects, len);
        return;
    }
    int wanted = ((raid_t)symbol(reference, base))(vects, len, other);
    if ((result == 0) != (wanted == 0) || (!strcmp(name, base) && result != wanted))
        fail("%d vectors, length %d returns %d, not %d", vects, len, result, wanted);
    same();
}

static void check_matrices(void)
{
    static unsigned char a[256 * 256], b[256 * 256], c[256 * 256], d[256 * 256];
    const char *names[] = { "gf_gen_rs_matrix", "gf_gen_cauchy1_matrix" };
    for (int i = 0; i < 2; i++) {
        current = names[i];
        int columns = 1 + draw(100), all = columns + draw(100);
        memset(a, 0xee, sizeof a);
        memset(b, 0xee, sizeof b);
        ((generate_t)symbol(library, names[i]))(a, all, columns);
        ((generate_t)symbol(reference, names[i]))(b, all, columns);
        if (memcmp(a, b, sizeof a))
            fail("%d x %d differs", all, columns);
    }
    current = "gf_invert_matrix";
    int n = 1 + draw(24);
    for (int i = 0; i < n * n; i++)
        a[i] = b[i] = draw(3) ? draw(256) : 0;
    if (draw(3) == 0)
        memcpy(a + (n - 1) * n, a, n), memcpy(b + (n - 1) * n, b, n);
    memset(c, 0xee, sizeof c);
    memset(d, 0xee, sizeof d);
    int result = ((invert_t)symbol(library, current))(a, c, n);
    int wanted = ((invert_t)symbol(reference, current))(b, d, n);
    if (result != wanted || memcmp(a, b, n * n) || memcmp(c, d, sizeof c))
        fail("%d x %d differs, %d or %d", n, n, result, wanted);
    current = "gf_mul, gf_inv";
    unsigned char x = draw(256), y = draw(256);
    if (((two_t)symbol(library, "gf_mul"))(x, y) != ((two_t)symbol(reference, "gf_mul"))(x, y) ||
        ((one_t)symbol(library, "gf_inv"))(x) != ((one_t)symbol(reference, "gf_inv"))(x))
        fail("%d, %d", x, y);
}

/* One output that is also a source, which every byte-wise function allows. */
static void check_in_place(void)
{
    current = "ec_encode_data in place";
    arrange(1);
    rows = 1;
    int shared = draw(k);
    memcpy(expected[0], sources[shared], len);
    memcpy(to[0], sources[shared], len);
    unsigned char *mine[MOST], *other[MOST];
    memcpy(mine, sources, sizeof mine);
    memcpy(other, sources, sizeof other);
    mine[shared] = to[0];
    other[shared] = expected[0];
    ((encode_t)symbol(library, "ec_encode_data"))(len, k, 1, tables, mine, to);
    ((encode_t)symbol(reference, "ec_encode_data_base"))(len, k, 1, reference_tables(), other, expected);
    same();
}

/* Nothing is read or written, as in ISA-L. */
static void check_nothing(void)
{
    current = "nothing to do";
    ((encode_t)symbol(library, "ec_encode_data"))(0, 4, 2, NULL, NULL, NULL);
    ((encode_t)symbol(library, "ec_encode_data"))(-5, 4, 2, NULL, NULL, NULL);
    ((encode_t)symbol(library, "ec_encode_data"))(64, 4, 0, NULL, NULL, NULL);
    ((encode_t)symbol(library, "ec_encode_data"))(64, 4, -1, NULL, NULL, NULL);
    ((update_t)symbol(library, "ec_encode_data_update"))(0, 4, 2, 1, NULL, NULL, NULL);
    ((init_t)symbol(library, "ec_init_tables"))(0, 3, NULL, NULL);
    ((init_t)symbol(library, "ec_init_tables"))(-1, -3, NULL, NULL);
    ((generate_t)symbol(library, "gf_gen_rs_matrix"))(NULL, 0, 0);
    if (((invert_t)symbol(library, "gf_invert_matrix"))(NULL, NULL, 0) != 0)
        fail("an empty matrix");
    if (((raid_t)symbol(library, "xor_gen"))(-1, 64, NULL) != 1 || ((raid_t)symbol(library, "pq_gen"))(3, 64, NULL) != 1)
        fail("too few vectors");
}

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    if (!(library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL)) || !(reference = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL)))
        fail("%s", dlerror());
    data = malloc(MOST * STRIDE);
    ours = malloc(ROWS * STRIDE);
    theirs = malloc(ROWS * STRIDE);
    const char *sets[] = { "", "_sse", "_avx", "_avx2", "_avx512", "_avx2_gfni", "_avx512_gfni" };
    check_nothing();
    for (int round = 0; round < atoi(arguments[3]); round++) {
        char name[64];
        check_tables();
        check_matrices();
        check_in_place();
        check_encode("ec_encode_data_base", 1);
        check_update("ec_encode_data_update_base", 1);
        check_dot("gf_vect_dot_prod_base", 1, 1);
        check_mad("gf_vect_mad_base", 1, 1);
        for (int set = 0; set < 7; set++) {
            snprintf(name, sizeof name, "ec_encode_data%s", sets[set]);
            check_encode(name, 0);
            snprintf(name, sizeof name, "ec_encode_data_update%s", sets[set]);
            check_update(name, 0);
            snprintf(name, sizeof name, "gf_vect_dot_prod%s", sets[set]);
            check_dot(name, 1, 0);
            snprintf(name, sizeof name, "gf_vect_mad%s", sets[set]);
            check_mad(name, 1, 0);
            for (int several = 2; several <= 6 && set > 0; several++) {
                snprintf(name, sizeof name, "gf_%dvect_dot_prod%s", several, sets[set]);
                if (set != 5 || several <= 3)
                    check_dot(name, several, 0);
                snprintf(name, sizeof name, "gf_%dvect_mad%s", several, sets[set]);
                if (set != 5 || several <= 5)
                    check_mad(name, several, 0);
            }
        }
        check_multiply("gf_vect_mul_base", 1);
        check_multiply("gf_vect_mul", 0);
        check_multiply("gf_vect_mul_sse", 0);
        check_multiply("gf_vect_mul_avx", 0);
        check_multiply("gf_vect_mul_avx2_gfni", 0);
        const char *xors[] = { "xor_gen", "xor_gen_base", "xor_gen_sse", "xor_gen_avx", "xor_gen_avx512" };
        for (int i = 0; i < 5; i++)
            check_raid(xors[i], "xor_gen_base", 1, 0, 0);
        check_raid("xor_check", "xor_check_base", 1, 0, 1);
        check_raid("xor_check_sse", "xor_check_base", 1, 0, 1);
        check_raid("xor_check_base", "xor_check_base", 1, 0, 1);
        check_raid("pq_gen_base", "pq_gen_base", 2, 0, 0);
        check_raid("pq_gen_sse", "pq_gen_base", 2, 16, 0);
        check_raid("pq_gen_avx", "pq_gen_base", 2, 16, 0);
        check_raid("pq_gen_avx2", "pq_gen_base", 2, 32, 0);
        check_raid("pq_gen_avx512", "pq_gen_base", 2, 32, 0);
        check_raid("pq_gen_avx2_gfni", "pq_gen_base", 2, 32, 0);
        check_raid("pq_gen_avx512_gfni", "pq_gen_base", 2, 32, 0);
        check_raid("pq_check_base", "pq_check_base", 2, 0, 1);
        check_raid("pq_check", "pq_check_base", 2, 16, 1);
        check_raid("pq_check_sse", "pq_check_base", 2, 16, 1);
        len = 0;
    }
    printf("same\n");
    return 0;
}
