/* The load client for RabbitMQ: librabbitmq opens connection, channel and queues; then the socket is taken over and frames are
 * written and read many at a time, which is what makes it as fast as a client can be. Every message still has its own
 * basic.publish, every acknowledgement its own basic.ack.
 *
 *   setup    queue= kind=quorum|classic queues= delivery-limit= dead-letter= exchange= (bound to all queues) durable=
 *            type=fanout|topic|headers bindings= (of each queue: a.b00000.* and so on, or the header "of")
 *   produce  queue= exchange= queues= count= window= confirm= durable= rate= body= connections= bindings= (each key, and each pair of
 *            headers, is new and meets one of so many)
 *   consume  queue= queues= count= prefetch= ack=each|none|reject stamp= connections=
 *   depth    queue=
 *   idle     connections=   (holds them until a second line comes)
 * consume linger= stays that many ms before it closes. With single=1 each message and each acknowledgement is a write of its own, as the
 * clients do that programs use. Everywhere port=, deadline= (seconds), late=1 (connect only after the go, and try until the broker is there). With queues=N the queues are called queue.0 … queue.N-1, connection i uses i mod N.
 */
#define _GNU_SOURCE
#include "load.h"

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { METHOD = 1, HEADER = 2, BODY = 3, FRAME_EXTRA = 8, FRAME_END = 0xCE };
enum { DELIVER = (60u << 16) | 60, ACK = (60u << 16) | 80, NACK = (60u << 16) | 120, CHANNEL_CLOSE = (20u << 16) | 40, CHANNEL_CLOSED = (20u << 16) | 41 };
enum { BATCH = 256, RING_WINDOWS = 64 };

typedef struct {
  int number, socket;
  amqp_connection_state_t amqp;
  char queue[256];
  unsigned char *inbox, *outbox;
  size_t in_start, in_end, out_end;
  /* produce */
  long target, sent, confirmed, refused, oldest;
  int64_t *sent_ns; /* a ring; 0: confirmed. RabbitMQ may confirm out of order, oldest is the first that is not. */
  unsigned char *publish; /* a whole basic.publish with header and an empty body, made once */
  size_t publish_bytes, body_at, key_at, headers_at;
  /* consume */
  bool body_is_next, closed;
  Latencies latencies;
} Link;

static long body_bytes, window_size, interval_ns, ring_size, bindings;
static size_t frame_bytes, buffer_bytes;
static int64_t go_ns, deadline_ns;
static int64_t first_ns, last_ns;
static long received, redelivered_count, receive_target;
static char ack_mode;
static bool stamped, confirming, closing, single;

/* -- opening ------------------------------------------------------------------------------------------------------ */

static void check(amqp_rpc_reply_t reply, const char *what) {
  if (reply.reply_type == AMQP_RESPONSE_NORMAL) return;
  if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
    amqp_channel_close_t *close = reply.reply.decoded;
    fprintf(stderr, "%s: %.*s\n", what, (int)close->reply_text.len, (char *)close->reply_text.bytes);
  } else {
    fprintf(stderr, "%s: %s\n", what, amqp_error_string2(reply.library_error));
  }
  die(what);
}

static bool log_in(Link *link) {
  link->amqp = amqp_new_connection();
  amqp_socket_t *socket = amqp_tcp_socket_new(link->amqp);
  if (!socket || amqp_socket_open(socket, "127.0.0.1", (int)option_number("port", 5672))) return false;
  amqp_rpc_reply_t reply = amqp_login(link->amqp, "/", 0, (int)frame_bytes, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest");
  return reply.reply_type == AMQP_RESPONSE_NORMAL;
}

static void open_link(Link *link, int number) {
  long queues = option_number("queues", 0);
  link->number = number;
  if (queues)
    snprintf(link->queue, sizeof link->queue, "%s.%ld", option_text("queue", "bench"), number % queues);
  else
    snprintf(link->queue, sizeof link->queue, "%s", option_text("queue", "bench"));
  while (!log_in(link)) { /* with late=1 the broker may still be starting: ask every 5 ms */
    if (!option_number("late", 0) || now_ns() > deadline_ns) die("no connection");
    amqp_destroy_connection(link->amqp);
    usleep(5000);
  }
  amqp_channel_open(link->amqp, 1);
  check(amqp_get_rpc_reply(link->amqp), "channel.open");
  link->socket = amqp_get_sockfd(link->amqp);
  if ((size_t)amqp_get_frame_max(link->amqp) < frame_bytes) die("a body has to fit one frame, and the broker's frames are smaller");
}

static void take_over(Link *link) {
  link->inbox = malloc(buffer_bytes);
  link->outbox = malloc(buffer_bytes);
  if (!link->inbox || !link->outbox) die("out of memory");
  fcntl(link->socket, F_SETFL, fcntl(link->socket, F_GETFL) & ~O_NONBLOCK); /* librabbitmq's are not; waiting must not burn CPU */
  struct timeval patience = {.tv_usec = 200000}; /* so that deadlines are looked at */
  setsockopt(link->socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

/* -- frames ------------------------------------------------------------------------------------------------------- */

static uint32_t read32(const unsigned char *at) {
  uint32_t value;
  memcpy(&value, at, 4);
  return ntohl(value);
}

static uint64_t read64(const unsigned char *at) {
  uint64_t value;
  memcpy(&value, at, 8);
  return be64toh(value);
}

static unsigned char *put(unsigned char *at, const void *bytes, size_t count) { return (unsigned char *)memcpy(at, bytes, count) + count; }
static unsigned char *put8(unsigned char *at, unsigned value) { return *at = (unsigned char)value, at + 1; }
static unsigned char *put16(unsigned char *at, unsigned value) { return put(at, &(uint16_t){htons((uint16_t)value)}, 2); }
static unsigned char *put32(unsigned char *at, uint32_t value) { return put(at, &(uint32_t){htonl(value)}, 4); }
static unsigned char *put64(unsigned char *at, uint64_t value) { return put(at, &(uint64_t){htobe64(value)}, 8); }
static unsigned char *put_short_text(unsigned char *at, const char *text) { return put(put8(at, (unsigned)strlen(text)), text, strlen(text)); }

static unsigned char *frame_head(unsigned char *at, int type, size_t payload) {
  return put32(put16(put8(at, type), 1), (uint32_t)payload);
}

static void flush(Link *link) {
  for (size_t done = 0; done < link->out_end;) {
    ssize_t wrote = send(link->socket, link->outbox + done, link->out_end - done, MSG_NOSIGNAL);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) die("the connection was lost while sending");
    done += (size_t)wrote;
  }
  link->out_end = 0;
}

/* basic.ack (deliver tag, not multiple) or basic.nack with requeue. */
static void queue_answer(Link *link, uint64_t tag, bool reject) {
  if (link->out_end + 32 > buffer_bytes) flush(link);
  unsigned char *at = link->outbox + link->out_end;
  at = put8(put64(put32(frame_head(at, METHOD, 13), reject ? NACK : ACK), tag), reject ? 2 : 0);
  link->out_end = (size_t)(put8(at, FRAME_END) - link->outbox);
}

/* What a message with a new key looks like; the digits are written over. Microseconds since the go begin the count: no run repeats one. */
#define KEY "a.b00000.0000000000000000"
#define HEADERS "\2ofS\0\0\0\6b00000\2noS\0\0\0\0200000000000000000"
enum { HEADERS_BYTES = sizeof HEADERS - 1 };

static void write_key(unsigned char *publish, const Link *link) {
  char key[sizeof KEY + 40];
  long number = go_ns / 1000 + link->sent;
  snprintf(key, sizeof key, "a.b%05ld.%016ld", number % bindings, number);
  put(publish + link->key_at, key, sizeof KEY - 1);
  put(publish + link->headers_at + 8, key + 2, 6);
  put(publish + link->headers_at + HEADERS_BYTES - 16, key + 9, 16);
}

static void make_publish(Link *link) {
  const char *exchange = option_text("exchange", "");
  link->publish = malloc((size_t)body_bytes + 1024);
  const char *key = bindings ? KEY : link->queue;
  size_t headers = bindings ? 4 + HEADERS_BYTES : 0;
  unsigned char *at = frame_head(link->publish, METHOD, 4 + 2 + 1 + strlen(exchange) + 1 + strlen(key) + 1);
  at = put_short_text(put_short_text(put16(put32(at, (60u << 16) | 40), 0), exchange), key);
  link->key_at = (size_t)(at - link->publish) - strlen(key);
  at = put8(put8(at, 0), FRAME_END);
  at = put64(put16(put16(frame_head(at, HEADER, 15 + headers), 60), 0), (uint64_t)body_bytes);
  at = put16(at, bindings ? 0x3000 : 0x1000); /* the properties: headers where there are some, and delivery-mode */
  if (bindings) {
    link->headers_at = (size_t)(put32(at, HEADERS_BYTES) - link->publish);
    at = put(put32(at, HEADERS_BYTES), HEADERS, HEADERS_BYTES);
  }
  at = put8(put8(at, option_number("durable", 1) ? 2 : 1), FRAME_END);
  at = frame_head(at, BODY, (size_t)body_bytes);
  link->body_at = (size_t)(at - link->publish);
  put8(at + body_bytes, FRAME_END);
  link->publish_bytes = link->body_at + (size_t)body_bytes + 1;
}

static void queue_publish(Link *link, int64_t stamp_ns) {
  if (link->out_end + link->publish_bytes > buffer_bytes) flush(link);
  unsigned char *at = put(link->outbox + link->out_end, link->publish, link->body_at);
  if (bindings) write_key(at - link->body_at, link);
  memcpy(at, body_at(link->sent * 7 + link->number), (size_t)body_bytes);
  memcpy(at, &stamp_ns, STAMP_BYTES);
  at[body_bytes] = FRAME_END;
  link->out_end += link->publish_bytes;
  link->sent_ns[link->sent++ % ring_size] = stamp_ns;
}

/* -- what comes back ---------------------------------------------------------------------------------------------- */

static void confirm_one(Link *link, long number, int64_t now, bool refused) {
  int64_t *sent = &link->sent_ns[number % ring_size];
  if (number < link->oldest || !*sent) return;
  if (interval_ns || window_size == 1) latency_add(&link->latencies, now - *sent);
  *sent = 0;
  link->confirmed++;
  link->refused += refused;
}

static void confirm(Link *link, long tag, bool multiple, bool refused) {
  int64_t now = now_ns();
  for (long number = multiple ? link->oldest : tag - 1; number < tag; number++) confirm_one(link, number, now, refused);
  while (link->oldest < link->sent && !link->sent_ns[link->oldest % ring_size]) link->oldest++;
}

/* May another message leave? */
static bool has_room(const Link *link) {
  return link->sent < link->target && link->sent - link->confirmed < window_size && link->sent - link->oldest < ring_size;
}

static void on_delivery(Link *link, const unsigned char *method) {
  const unsigned char *at = method + 4;
  uint64_t tag = read64(at + 1 + at[0]);
  if (closing) return; /* goes back to its queue */
  if (at[1 + at[0] + 8] & 1) redelivered_count++;
  if (ack_mode == 'n') return;
  queue_answer(link, tag, ack_mode == 'r');
  if (single) flush(link);
}

static void on_body(Link *link, const unsigned char *body) {
  if (closing) return;
  int64_t now = now_ns();
  if (stamped) {
    int64_t sent;
    memcpy(&sent, body, STAMP_BYTES);
    latency_add(&link->latencies, now - sent);
  }
  if (!first_ns) first_ns = now;
  last_ns = now;
  received++;
}

static void on_method(Link *link, const unsigned char *method) {
  uint32_t id = read32(method);
  if (id == DELIVER) {
    on_delivery(link, method);
  } else if (id == ACK || id == NACK) {
    confirm(link, (long)read64(method + 4), method[12] & 1, id == NACK);
  } else if (id == CHANNEL_CLOSED) {
    link->closed = true;
  } else if (id == CHANNEL_CLOSE) {
    fprintf(stderr, "channel closed: %.*s\n", method[6], method + 7);
    die("the broker closed the channel");
  }
}

static void read_frames(Link *link) {
  while (link->in_end - link->in_start >= 7) {
    unsigned char *frame = link->inbox + link->in_start;
    size_t payload = read32(frame + 3);
    if (link->in_end - link->in_start < payload + FRAME_EXTRA) break;
    if (frame[0] == METHOD) on_method(link, frame + 7);
    if (frame[0] == HEADER) link->body_is_next = true;
    if (frame[0] == BODY && link->body_is_next) {
      link->body_is_next = false; /* a body larger than one frame counts once, with its first */
      on_body(link, frame + 7);
    }
    link->in_start += payload + FRAME_EXTRA;
  }
  memmove(link->inbox, link->inbox + link->in_start, link->in_end - link->in_start);
  link->in_end -= link->in_start;
  link->in_start = 0;
}

/* Read what is there, waiting at most 200 ms for it. */
static void receive(Link *link, int flags) {
  ssize_t got = recv(link->socket, link->inbox + link->in_end, buffer_bytes - link->in_end, flags);
  if (got == 0) die("the broker closed the connection");
  if (got < 0 && errno != EAGAIN && errno != EINTR) die("the connection was lost");
  if (got > 0) {
    link->in_end += (size_t)got;
    read_frames(link);
  }
}

/* -- roles -------------------------------------------------------------------------------------------------------- */

static void produce_paced(Link *link) {
  while (link->confirmed < link->target && now_ns() < deadline_ns) {
    int64_t due = go_ns + link->sent * interval_ns, now = now_ns();
    if (link->sent < link->target && now >= due) {
      queue_publish(link, stamp_of(due, interval_ns));
      flush(link);
      continue;
    }
    int64_t patience = link->sent < link->target ? due - now : 100000000;
    struct pollfd waiting = {.fd = link->socket, .events = POLLIN};
    if (ppoll(&waiting, 1, &(struct timespec){patience / 1000000000, patience % 1000000000}, NULL) > 0) receive(link, MSG_DONTWAIT);
    if (!confirming) link->confirmed = link->oldest = link->sent;
  }
}

static void produce(Link *link) {
  if (interval_ns) return produce_paced(link);
  while (link->confirmed < link->target && now_ns() < deadline_ns) {
    for (int i = 0; i < BATCH && has_room(link); i++) {
      queue_publish(link, now_ns());
      if (single) flush(link);
    }
    flush(link);
    if (confirming)
      receive(link, has_room(link) ? MSG_DONTWAIT : 0);
    else
      link->confirmed = link->oldest = link->sent;
  }
}

static void start_consuming(Link *link) {
  amqp_basic_qos(link->amqp, 1, 0, (uint16_t)option_number("prefetch", 1000), false);
  check(amqp_get_rpc_reply(link->amqp), "basic.qos");
  take_over(link); /* basic.consume goes out by hand: its answer and the first deliveries are read by hand too */
  unsigned char *at = frame_head(link->outbox, METHOD, 4 + 2 + 1 + strlen(link->queue) + 1 + 1 + 4);
  at = put8(put_short_text(put16(put32(at, (60u << 16) | 20), 0), link->queue), 0);
  at = put8(put32(put8(at, ack_mode == 'n' ? 2 : 0), 0), FRAME_END);
  link->out_end = (size_t)(at - link->outbox);
  flush(link);
}

static void reopen(Link *link) {
  amqp_destroy_connection(link->amqp);
  free(link->inbox);
  free(link->outbox);
  link->in_start = link->in_end = link->out_end = 0;
  link->body_is_next = false;
  open_link(link, link->number);
  start_consuming(link);
}

static void consume(Link *link) {
  int64_t asked_ns = now_ns();
  while (received < receive_target && now_ns() < deadline_ns) {
    receive(link, 0);
    if (option_number("late", 0) && !received && now_ns() - asked_ns > 1000000000) {
      reopen(link); /* a quorum queue without a leader yet takes the subscription and forgets it */
      asked_ns = now_ns();
    }
    if (link->out_end) flush(link);
  }
}

/* Everything answered so far is with its queue when this returns; not part of what is timed. */
static void close_channel(Link *link) {
  unsigned char *at = frame_head(link->outbox, METHOD, 4 + 2 + 1 + 4);
  at = put8(put32(put8(put16(put32(at, CHANNEL_CLOSE), 200), 0), 0), FRAME_END);
  link->out_end = (size_t)(at - link->outbox);
  flush(link);
  for (int64_t end = now_ns() + 10000000000; !link->closed && now_ns() < end;) receive(link, 0);
}

static void declare(const char *queue, amqp_connection_state_t amqp) {
  amqp_table_entry_t entries[6];
  int used = 0;
  long limit = option_number("delivery-limit", -1);
  const char *dead_letter = option_text("dead-letter", NULL), *kind = option_text("kind", "classic");
  entries[used++] = (amqp_table_entry_t){amqp_cstring_bytes("x-queue-type"), {AMQP_FIELD_KIND_UTF8, {.bytes = amqp_cstring_bytes(kind)}}};
  if (limit >= 0)
    entries[used++] = (amqp_table_entry_t){amqp_cstring_bytes("x-delivery-limit"), {AMQP_FIELD_KIND_I32, {.i32 = (int32_t)limit}}};
  if (dead_letter) {
    entries[used++] = (amqp_table_entry_t){amqp_cstring_bytes("x-dead-letter-exchange"), {AMQP_FIELD_KIND_UTF8, {.bytes = amqp_cstring_bytes("")}}};
    entries[used++] =
        (amqp_table_entry_t){amqp_cstring_bytes("x-dead-letter-routing-key"), {AMQP_FIELD_KIND_UTF8, {.bytes = amqp_cstring_bytes(dead_letter)}}};
    amqp_queue_declare(amqp, 1, amqp_cstring_bytes(dead_letter), false, true, false, false, (amqp_table_t){1, entries});
    check(amqp_get_rpc_reply(amqp), "queue.declare of the dead-letter queue");
  }
  amqp_queue_declare(amqp, 1, amqp_cstring_bytes(queue), false, option_number("durable", 1), false, false, (amqp_table_t){used, entries});
  check(amqp_get_rpc_reply(amqp), "queue.declare");
}

static void bind_queue(amqp_connection_state_t amqp, const char *queue, const char *exchange, long number) {
  char pattern[48] = "", of[32];
  snprintf(of, sizeof of, "b%05ld", number);
  if (bindings) snprintf(pattern, sizeof pattern, "a.%s.*", of);
  amqp_table_entry_t pair = {amqp_cstring_bytes("of"), {AMQP_FIELD_KIND_UTF8, {.bytes = amqp_cstring_bytes(of)}}};
  bool by_headers = !strcmp(option_text("type", "fanout"), "headers");
  amqp_queue_bind(amqp, 1, amqp_cstring_bytes(queue), amqp_cstring_bytes(exchange), amqp_cstring_bytes(pattern), (amqp_table_t){by_headers, &pair});
  check(amqp_get_rpc_reply(amqp), "queue.bind");
}

static void set_up(Link *link) {
  long queues = option_number("queues", 0);
  const char *exchange = option_text("exchange", NULL);
  if (exchange) {
    amqp_exchange_declare(link->amqp, 1, amqp_cstring_bytes(exchange), amqp_cstring_bytes(option_text("type", "fanout")), false, true, false, false, amqp_empty_table);
    check(amqp_get_rpc_reply(link->amqp), "exchange.declare");
  }
  for (long i = 0; i < (queues ? queues : 1); i++) {
    char queue[256];
    snprintf(queue, sizeof queue, queues ? "%s.%ld" : "%s", option_text("queue", "bench"), i);
    declare(queue, link->amqp);
    for (long j = 0; exchange && j < (bindings ? bindings : 1); j++) bind_queue(link->amqp, queue, exchange, j);
  }
  printf("{\"count\": %ld}\n", queues ? queues : 1);
}

static void depth(Link *link) {
  amqp_queue_declare_ok_t *ok = amqp_queue_declare(link->amqp, 1, amqp_cstring_bytes(link->queue), true, false, false, false, amqp_empty_table);
  check(amqp_get_rpc_reply(link->amqp), "queue.declare, passive");
  printf("{\"count\": %u}\n", ok->message_count);
}

static void ready_to_produce(Link *link, long target) {
  confirming = option_number("confirm", 1);
  if (confirming) {
    amqp_confirm_select(link->amqp, 1);
    check(amqp_get_rpc_reply(link->amqp), "confirm.select");
  }
  take_over(link);
  link->target = target;
  link->sent_ns = calloc((size_t)ring_size, sizeof(int64_t));
  make_publish(link);
}

static void report(Link *links, long connections, bool producing, int64_t ended_ns) {
  Latencies all = {0};
  long count = producing ? 0 : received, refused = 0;
  for (long i = 0; i < connections; i++) {
    if (producing) count += links[i].confirmed;
    refused += links[i].refused;
    for (long j = 0; j < links[i].latencies.count; j++) latency_add(&all, links[i].latencies.values[j]);
  }
  printf("{\"count\": %ld, \"refused\": %ld, \"redelivered\": %ld, \"started_ns\": %ld, \"first_ns\": %ld, \"ended_ns\": %ld", count, refused,
         (long)redelivered_count, (long)go_ns, (long)first_ns, (long)(producing ? ended_ns : last_ns));
  print_latencies(&all);
  printf("}\n");
}

static void start_clock(void) {
  wait_for_go();
  go_ns = now_ns();
  deadline_ns = go_ns + option_number("deadline", 60) * 1000000000;
}

static long confirmed_by_all(const Link *links, long connections) {
  long confirmed = 0;
  for (long i = 0; i < connections; i++) confirmed += links[i].confirmed;
  return confirmed;
}

static void fill_window(Link *link) {
  while (has_room(link)) queue_publish(link, now_ns());
  flush(link);
}

/* Many connections in one thread: whoever has something to read is read, then answered. */
static void serve_many(Link *links, long connections, bool producing) {
  int poller = epoll_create1(0);
  struct epoll_event events[256];
  for (long i = 0; i < connections; i++) {
    struct epoll_event interest = {.events = EPOLLIN, .data.ptr = &links[i]};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, links[i].socket, &interest)) die("no epoll");
    if (producing) fill_window(&links[i]);
  }
  while (now_ns() < deadline_ns && (producing ? confirmed_by_all(links, connections) < receive_target : received < receive_target)) {
    int ready = epoll_wait(poller, events, 256, 200);
    for (int i = 0; i < ready; i++) {
      Link *link = events[i].data.ptr;
      receive(link, MSG_DONTWAIT);
      if (producing) fill_window(link);
      else if (link->out_end) flush(link);
    }
  }
  close(poller);
}

static void run(Link *links, long connections, bool producing) {
  if (!go_ns) start_clock();
  if (connections > 1) serve_many(links, connections, producing);
  else if (producing) produce(links);
  else consume(links);
  int64_t ended_ns = now_ns();
  closing = true;
  /* A channel of a quorum queue forgets, when closed, acknowledgements it has taken but not yet passed on. */
  for (int64_t end = now_ns() + option_number("linger", 0) * 1000000; now_ns() < end;) receive(links, 0);
  for (long i = 0; i < connections; i++) close_channel(&links[i]);
  report(links, connections, producing, ended_ns);
}

int main(int count, char **words) {
  if (count < 2) die("usage: ROLE key=value ...");
  const char *role = words[1];
  option_words = words + 2, option_count = count - 2;
  prctl(PR_SET_TIMERSLACK, 1);
  long connections = option_number("connections", 1), target = option_number("count", 0), rate = option_number("rate", 0);
  body_bytes = option_number("body", 1024);
  window_size = option_number("window", 1000);
  ring_size = RING_WINDOWS * window_size;
  frame_bytes = body_bytes > 100000 ? (size_t)body_bytes + 65536 : 131072; /* a body always fits one frame */
  buffer_bytes = frame_bytes < (1 << 18) ? 1 << 20 : 4 * frame_bytes;
  bindings = option_number("bindings", 0);
  interval_ns = rate ? 1000000000 / rate : 0;
  receive_target = target;
  stamped = option_number("stamp", 0);
  ack_mode = option_text("ack", "each")[0];
  single = option_number("single", 0);
  bool producing = !strcmp(role, "produce"), consuming = !strcmp(role, "consume");
  if (body_bytes < STAMP_BYTES) die("a body holds at least its stamp of 8 bytes");
  if (producing) make_pool((size_t)body_bytes);
  if (option_number("late", 0)) start_clock();
  Link *links = calloc((size_t)connections, sizeof *links);
  for (long i = 0; i < connections; i++) {
    open_link(&links[i], (int)i);
    if (producing) ready_to_produce(&links[i], target / connections + (i < target % connections));
    if (consuming) start_consuming(&links[i]);
  }
  if (!strcmp(role, "setup")) {
    set_up(links);
  } else if (!strcmp(role, "depth")) {
    depth(links);
  } else if (!strcmp(role, "idle")) {
    wait_for_go();
    printf("{\"count\": %ld}\n", connections);
  } else if (producing || consuming) {
    run(links, connections, producing);
  } else {
    die("unknown role");
  }
  fflush(stdout);
  return 0;
}
