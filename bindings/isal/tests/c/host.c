/*
 * A host program that does what programs do with libraries: encodes in many threads, with small stacks, forks while
 * others encode, goes on in the child, and closes the library and opens it again.
 *
 * host LIBRARY ROUNDS
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void (*init_t)(int, int, unsigned char *, unsigned char *);
typedef void (*encode_t)(int, int, int, unsigned char *, unsigned char **, unsigned char **);

enum { K = 12, ROWS = 20, LEN = 40000, THREADS = 4, STACK = 128 << 10 };

static init_t init_tables;
static encode_t encode, encode_base;
static int rounds;
static atomic_int stop;

static int open_library(const char *path, void **handle)
{
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*handle)
        return 0;
    init_tables = (init_t)dlsym(*handle, "ec_init_tables");
    encode = (encode_t)dlsym(*handle, "ec_encode_data");
    encode_base = (encode_t)dlsym(*handle, "ec_encode_data_base");
    return init_tables && encode && encode_base;
}

/* Encodes with new coefficients often enough that plans are compiled; 0 if a byte differs. */
static int work(unsigned seed, int count)
{
    unsigned char *memory = malloc((K + 2 * ROWS) * LEN), *tables = malloc(32 * K * ROWS);
    unsigned char a[K * ROWS], *sources[K], *to[ROWS], *expected[ROWS];
    for (int j = 0; j < K; j++)
        sources[j] = memory + j * LEN;
    for (int i = 0; i < ROWS; i++) {
        to[i] = memory + (K + i) * LEN;
        expected[i] = memory + (K + ROWS + i) * LEN;
    }
    for (int i = 0; i < K * LEN; i++)
        memory[i] = i * 7 + i / 251 + seed;
    int good = 1;
    for (int round = 0; round < count && good; round++) {
        int rows = 1 + (seed + round) % ROWS;
        for (int i = 0; i < K * rows; i++)
            a[i] = seed + round / 20 * 31 + i * 13;
        init_tables(K, rows, a, tables);
        encode(LEN, K, rows, tables, sources, to);
        encode_base(512, K, rows, tables, sources, expected);
        for (int i = 0; i < rows; i++)
            good = good && !memcmp(to[i], expected[i], 512);
    }
    free(tables);
    free(memory);
    return good;
}

static void *in_thread(void *number)
{
    return (void *)(intptr_t)work((unsigned)(intptr_t)number, rounds);
}

static void *until_stopped(void *number)
{
    int good = 1;
    for (int round = 0; !atomic_load(&stop) && good; round++)
        good = work((unsigned)(intptr_t)number + 100 * round, 3);
    return (void *)(intptr_t)good;
}

static int join(pthread_t *threads)
{
    int good = 1;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        good = !pthread_join(threads[i], &result) && result && good;
    }
    return good;
}

static int start(pthread_t *threads, void *(*function)(void *))
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, STACK))
        return 0;
    for (intptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &attributes, function, (void *)(i + 1)))
            return 0;
    return 1;
}

#define REQUIRE(condition, text) do { if (!(condition)) { fprintf(stderr, "%s\n", text); return 1; } } while (0)

int main(int count, char **arguments)
{
    void *handle;
    pthread_t threads[THREADS];
    if (count != 3)
        return 2;
    rounds = atoi(arguments[2]);
    REQUIRE(open_library(arguments[1], &handle), "the library cannot be opened");
    REQUIRE(start(threads, in_thread) && join(threads), "threads with small stacks");
    REQUIRE(start(threads, until_stopped), "threads");
    for (int i = 0; i < rounds / 4 + 1; i++) {
        pid_t child = fork();
        REQUIRE(child >= 0, "fork");
        if (child == 0) {
            /* A lock that a thread of the parent held would stop this for ever. */
            alarm(240);
            _exit(work(1000 + i, 4) ? 0 : 1);
        }
        int status;
        REQUIRE(waitpid(child, &status, 0) == child && status == 0, "a child of a fork");
    }
    atomic_store(&stop, 1);
    REQUIRE(join(threads), "threads beside forks");
    for (int i = 0; i < 3; i++) {
        REQUIRE(dlclose(handle) == 0, "closing the library");
        REQUIRE(open_library(arguments[1], &handle) && work(i, 2), "opening the library again");
    }
    printf("good\n");
    return 0;
}
