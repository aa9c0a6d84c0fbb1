/* gpu_order.c - see gpu_order.h */
#include "scheduler/gpu_order.h"

#include <string.h>

#include "base/err.h"

bool gpu_order_before(const gpu_node *a, const gpu_node *b)
{
    return a->n_running != b->n_running ? a->n_running < b->n_running : a->rank < b->rank;
}

static void update(gpu_node *n)
{
    for (int k = 0; k < N_ROOMS; k++) {
        n->most[k] = n->room[k];
        if (n->left && n->left->most[k] > n->most[k])
            n->most[k] = n->left->most[k];
        if (n->right && n->right->most[k] > n->most[k])
            n->most[k] = n->right->most[k];
    }
}

/* Splits `tree`: what stands before `key` goes to *left, the rest to *right. */
static void split(gpu_node *tree, const gpu_node *key, gpu_node **left, gpu_node **right)
{
    if (!tree) {
        *left = *right = NULL;
        return;
    }
    if (gpu_order_before(tree, key)) {
        *left = tree;
        split(tree->right, key, &tree->right, right);
    } else {
        *right = tree;
        split(tree->left, key, left, &tree->left);
    }
    update(tree);
}

/* Merges two trees; everything in a stands before everything in b. */
static gpu_node *merge(gpu_node *a, gpu_node *b)
{
    if (!a || !b)
        return a ? a : b;
    gpu_node *top = a->priority > b->priority ? a : b;
    if (top == a)
        a->right = merge(a->right, b);
    else
        b->left = merge(a, b->left);
    update(top);
    return top;
}

static gpu_node *insert(gpu_node *tree, gpu_node *n)
{
    if (!tree || n->priority > tree->priority) {
        split(tree, n, &n->left, &n->right);
        tree = n;
    } else if (gpu_order_before(n, tree)) {
        tree->left = insert(tree->left, n);
    } else {
        tree->right = insert(tree->right, n);
    }
    update(tree);
    return tree;
}

static gpu_node *take_out(gpu_node *tree, gpu_node *n)
{
    CHECK(tree);
    if (tree == n)
        return merge(n->left, n->right);
    if (gpu_order_before(n, tree))
        tree->left = take_out(tree->left, n);
    else
        tree->right = take_out(tree->right, n);
    update(tree);
    return tree;
}

static void refresh(gpu_node *tree, gpu_node *n)
{
    CHECK(tree);
    if (tree != n)
        refresh(gpu_order_before(n, tree) ? tree->left : tree->right, n);
    update(tree);
}

static bool has_room(const gpu_node *n)
{
    return n->room[ROOM_ANY] > 0 || n->room[ROOM_ALONE] > 0;
}

void gpu_order_remove(gpu_order *o, gpu_node *n)
{
    if (has_room(n))
        o->root = take_out(o->root, n);
}

void gpu_order_set(gpu_order *o, gpu_node *n, int n_running, const int64_t room[N_ROOMS])
{
    bool stays = has_room(n) && (room[ROOM_ANY] > 0 || room[ROOM_ALONE] > 0) && n->n_running == n_running;
    if (stays && memcmp(n->room, room, sizeof n->room) == 0)
        return;
    if (!stays)
        gpu_order_remove(o, n);
    n->n_running = n_running;
    memcpy(n->room, room, sizeof n->room);
    if (stays)
        refresh(o->root, n);
    else if (has_room(n))
        o->root = insert(o->root, n);
}

gpu_node *gpu_order_find(const gpu_order *o, room_kind kind, int64_t n_tokens)
{
    gpu_node *n = o->root;
    if (!n || n->most[kind] < n_tokens)
        return NULL;
    for (;;) {
        if (n->right && n->right->most[kind] >= n_tokens)
            n = n->right;
        else if (n->room[kind] >= n_tokens)
            return n;
        else
            n = n->left;
    }
}

static int check(const gpu_node *n, const gpu_node *low, const gpu_node *high)
{
    if (!n)
        return 0;
    CHECK(has_room(n) && (!low || gpu_order_before(low, n)) && (!high || gpu_order_before(n, high)));
    CHECK((!n->left || n->left->priority <= n->priority) && (!n->right || n->right->priority <= n->priority));
    gpu_node copy = *n;
    update(&copy);
    for (int k = 0; k < N_ROOMS; k++)
        CHECK(copy.most[k] == n->most[k]);
    return 1 + check(n->left, low, n) + check(n->right, n, high);
}

int gpu_order_check(const gpu_order *o)
{
    return check(o->root, NULL, NULL);
}
