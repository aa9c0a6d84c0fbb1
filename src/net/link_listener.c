/* link_listener.c - see link.h: the listening side
 *
 * A stranger is a peer that has connected and not proved itself yet. Strangers are bounded, in all and for each network
 * they come from, so that unauthorised peers cannot keep out authorised ones. */
#include <stdlib.h>

#include "base/id_map.h"
#include "base/mem.h"
#include "net/address.h"
#include "net/link_state.h"

enum { MAX_STRANGERS = 1024, MAX_OF_NETWORK = 256 }; /* of all networks; of one */

/* A network that links come from (address_network()). */
struct link_network {
    uint64_t id;
    int n_links, n_strangers;
};

struct link_listener {
    link_endpoint end;
    acceptor *acceptor;
    net_link *links;
    id_map *networks; /* of link_network *, owned */
    uint64_t n_accepted;
};

void link_listener_remove(net_link *l)
{
    if (--l->from->n_links == 0) {
        id_map_remove(l->listener->networks, l->from->id);
        free(l->from);
    }
    if (l->prev)
        l->prev->next = l->next;
    else
        l->listener->links = l->next;
    if (l->next)
        l->next->prev = l->prev;
}

static bool is_stranger(const net_link *l)
{
    return !l->was_up;
}

/* Returns whether to hang up on stranger a before b: a refused one before one that is not; then one of the network with
 * more strangers, so that no network can take the places of another; then the older one, since an authorised peer
 * proves itself in a moment. */
static bool is_missed_less(const net_link *a, const net_link *b)
{
    if ((a->state == LINK_LOST) != (b->state == LINK_LOST))
        return a->state == LINK_LOST;
    if (a->from != b->from)
        return a->from->n_strangers > b->from->n_strangers;
    return a->number < b->number;
}

/* Returns the stranger to hang up on first, of one network or (NULL) of all; *n: how many there are. NULL: none. */
static net_link *least_missed(link_listener *s, const link_network *of, int *n)
{
    net_link *least = NULL;
    *n = 0;
    for (net_link *l = s->links; l; l = l->next)
        l->from->n_strangers = 0;
    for (net_link *l = s->links; l; l = l->next)
        l->from->n_strangers += is_stranger(l);
    for (net_link *l = s->links; l; l = l->next) {
        if (!is_stranger(l) || (of && l->from != of))
            continue;
        ++*n;
        if (!least || is_missed_less(l, least))
            least = l;
    }
    return least;
}

/* Hangs up on a stranger of this network if it has as many as it may, else on one of any network if all have. */
static void make_room(link_listener *s, const link_network *of)
{
    int n;
    net_link *least = least_missed(s, of, &n);
    if (n >= MAX_OF_NETWORK) {
        link_hang_up(least, "many others of its network have not done so either");
        return;
    }
    least = least_missed(s, NULL, &n);
    if (n >= MAX_STRANGERS)
        link_hang_up(least, "many others have not done so either");
}

/* Hangs up on a stranger, since file descriptors are running out; false: there is no stranger. */
static bool spare_one(void *ctx)
{
    int n;
    net_link *least = least_missed(ctx, NULL, &n);
    if (least)
        link_hang_up(least, "there are no file descriptors left");
    return least;
}

/* Counts one more link of an address's network, and returns that network; it lives as long as one of its links. */
static link_network *join_network(link_listener *s, const char *from)
{
    uint64_t id = address_network(from);
    link_network *n = id_map_get(s->networks, id);
    if (!n) {
        n = XNEW(link_network);
        n->id = id;
        id_map_put(s->networks, id, n);
    }
    n->n_links++;
    return n;
}

static void on_accepted(void *ctx, net_stream *stream, const char *from)
{
    link_listener *s = ctx;
    net_link *l = link_new(&s->end, s);
    l->from = join_network(s, from);
    l->number = s->n_accepted++;
    make_room(s, l->from);
    l->next = s->links;
    if (l->next)
        l->next->prev = l;
    s->links = l;
    link_accept(l, stream, from);
}

link_listener *link_listen(net_loop *on, const char *at, const link_options *o, const link_events *e, err *error)
{
    link_listener *s = XNEW(link_listener);
    const acceptor_events events = {on_accepted, spare_one, s};
    s->networks = id_map_new();
    link_endpoint_init(&s->end, on, o, e, SIDE_LISTENING);
    s->acceptor = on->ops->acceptor_new(on, at, o->own, &events, error);
    if (s->acceptor)
        return s;
    link_listener_free(s);
    return NULL;
}

const char *link_listener_address(const link_listener *s)
{
    return s->acceptor->address;
}

void link_listener_free(link_listener *s)
{
    if (!s)
        return;
    while (s->links)
        link_destroy(s->links);
    acceptor_free(s->acceptor);
    id_map_free(s->networks);
    link_endpoint_deinit(&s->end);
    free(s);
}
