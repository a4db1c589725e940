/* What every C load client shares: options, clock, random bodies, latencies, the go signal, and the result line.
 *
 * A load client is called ROLE key=value …; it connects, prints {"ready": true}, waits for a line on stdin, does its work and
 * prints one JSON object. Times are CLOCK_MONOTONIC nanoseconds, which all processes of a machine share.
 */
#ifndef HOMING_LOAD_H
#define HOMING_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POOL_BYTES (1 << 22)
#define STAMP_BYTES 8

static char **option_words;
static int option_count;

static inline const char *option_text(const char *name, const char *fallback) {
  size_t length = strlen(name);
  for (int i = 0; i < option_count; i++)
    if (!strncmp(option_words[i], name, length) && option_words[i][length] == '=') return option_words[i] + length + 1;
  return fallback;
}

static inline long option_number(const char *name, long fallback) {
  const char *text = option_text(name, NULL);
  return text ? atol(text) : fallback;
}

static inline int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void die(const char *what) {
  printf("{\"error\": \"%s\"}\n", what);
  fflush(stdout);
  exit(1);
}

/* Bodies are slices of this; the sentinel at a slice's start differs with every message, so that nothing compresses. */
static char *random_pool;

static inline void make_pool(size_t body_bytes) {
  random_pool = malloc(POOL_BYTES + body_bytes);
  FILE *source = fopen("/dev/urandom", "r");
  if (!random_pool || !source || fread(random_pool, 1, POOL_BYTES + body_bytes, source) != POOL_BYTES + body_bytes) die("no random bytes");
  fclose(source);
}

static inline const char *body_at(int64_t number) { return random_pool + (number * 1031) % POOL_BYTES; }

/* A message that leaves more than one interval late is stamped with the moment it was due: a stalled sender hides nothing. */
static inline int64_t stamp_of(int64_t due_ns, int64_t interval_ns) {
  int64_t now = now_ns();
  return interval_ns && now - due_ns > interval_ns ? due_ns : now;
}

typedef struct {
  int64_t *values;
  long count, room;
} Latencies;

static inline void latency_add(Latencies *latencies, int64_t value_ns) {
  if (latencies->count == latencies->room) {
    latencies->room = latencies->room ? 2 * latencies->room : 1 << 16;
    latencies->values = realloc(latencies->values, sizeof(int64_t) * latencies->room);
    if (!latencies->values) die("out of memory");
  }
  latencies->values[latencies->count++] = value_ns;
}

static inline int compare_ns(const void *left, const void *right) {
  int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
  return (a > b) - (a < b);
}

static inline double percentile_ms(Latencies *latencies, double share) {
  long at = (long)(share * (double)latencies->count);
  return (double)latencies->values[at < latencies->count ? at : latencies->count - 1] / 1e6;
}

static inline void print_latencies(Latencies *latencies) {
  if (!latencies->count) return;
  qsort(latencies->values, latencies->count, sizeof(int64_t), compare_ns);
  printf(", \"p50_ms\": %.4f, \"p90_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f", percentile_ms(latencies, 0.5),
         percentile_ms(latencies, 0.9), percentile_ms(latencies, 0.99), percentile_ms(latencies, 1));
}

static inline void wait_for_go(void) {
  char line[16];
  printf("{\"ready\": true}\n");
  fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) exit(1);
}

#endif
