/* cluster_plot.c - see cluster_plot.h */
#include "sim/cluster_plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { N_BINS = 360 };

/* The figure, in SVG units. */
enum { WIDTH = 900, LEFT = 84, RIGHT = 96, TOP = 44, PANEL = 130, GAP = 34, ROW = 14 };

cluster_series cluster_series_new(int n_gpus, int max_batch, double seconds)
{
    cluster_series s = {
        .n_gpus = n_gpus, .max_batch = max_batch, .n_bins = N_BINS, .seconds_per_bin = seconds / N_BINS};
    s.requests = XNEW_ARRAY(double, N_BINS);
    s.tokens = XNEW_ARRAY(double, N_BINS);
    s.batch = XNEW_ARRAY(double, (size_t)n_gpus *N_BINS);
    return s;
}

void cluster_series_free(cluster_series *s)
{
    free(s->requests);
    free(s->tokens);
    free(s->batch);
    *s = (cluster_series){0};
}

static double batch_at(const cluster_series *s, int gpu, int bin)
{
    return s->batch[(size_t)gpu * (size_t)s->n_bins + (size_t)bin];
}

static FILE *open_output(const char *path, err *e)
{
    FILE *f = fopen(path, "w");
    if (!f)
        err_set(e, "cannot write %s: %s", path, strerror(errno));
    return f;
}

static int close_output(FILE *f, const char *path, err *e)
{
    int failed = ferror(f);
    return fclose(f) || failed ? err_set(e, "cannot write %s: %s", path, strerror(errno)) : 0;
}

int cluster_series_write_csv(const cluster_series *s, const char *path, err *e)
{
    FILE *f = open_output(path, e);
    if (!f)
        return -1;
    fprintf(f, "seconds,requests_per_s,tokens_per_s");
    for (int g = 0; g < s->n_gpus; g++)
        fprintf(f, ",batch_gpu%d", g);
    fprintf(f, "\n");
    for (int b = 0; b < s->n_bins; b++) {
        fprintf(f, "%g,%.3f,%.1f", b * s->seconds_per_bin, s->requests[b], s->tokens[b]);
        for (int g = 0; g < s->n_gpus; g++)
            fprintf(f, ",%.2f", batch_at(s, g, b));
        fprintf(f, "\n");
    }
    return close_output(f, path, e);
}

/* 1, 2 or 5 times a power of ten, so that about n of them make `range`. */
static double round_step(double range, int n)
{
    double raw = range / n, power = pow(10, floor(log10(raw))), digit = raw / power;
    return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

static void print_number(char out[32], double x)
{
    if (x >= 10000)
        snprintf(out, 32, "%g k", x / 1000);
    else
        snprintf(out, 32, "%g", x);
}

/* Text from a file, as XML wants it. */
static void write_text(FILE *f, const char *text)
{
    for (; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&')
            fputs(*text == '<' ? "&lt;" : *text == '>' ? "&gt;" : "&amp;", f);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, f);
}

static void draw_title(FILE *f, double y, const char *title)
{
    fprintf(f, "<text x=\"%d\" y=\"%.1f\" class=\"title\">%s</text>\n", LEFT, y - 8, title);
}

/* A line over time with its scale; y is the panel's top. */
static void draw_line(FILE *f, const cluster_series *s, double y, const double *value, const char *title,
                      const char *colour)
{
    double most = 0, width = WIDTH - LEFT - RIGHT;
    for (int b = 0; b < s->n_bins; b++)
        most = fmax(most, value[b]);
    double step = round_step(most > 0 ? most : 1, 4), top = step * ceil((most > 0 ? most : 1) / step);
    draw_title(f, y, title);
    for (double v = 0; v <= top * 1.001; v += step) {
        char label[32];
        double at = y + PANEL * (1 - v / top);
        print_number(label, v);
        fprintf(f, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>", LEFT, WIDTH - RIGHT, at, at);
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8, at + 4, label);
    }
    fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.4\" points=\"", colour);
    for (int b = 0; b < s->n_bins; b++)
        fprintf(f, "%.1f,%.1f ", LEFT + width * (b + 0.5) / s->n_bins, y + PANEL * (1 - value[b] / top));
    fprintf(f, "\"/>\n");
}

/* In 32 steps, so that neighbours are often alike. From nearly white over yellow-green and teal to dark blue. */
static void colour_of(double share, char out[8])
{
    static const double stop[5][3] = {{247, 247, 247}, {199, 233, 180}, {65, 182, 196}, {34, 94, 168}, {8, 29, 88}};
    double at = round(fmin(fmax(share, 0), 1) * 32) / 8;
    int i = at >= 4 ? 3 : (int)at;
    int rgb[3];
    for (int c = 0; c < 3; c++)
        rgb[c] = (int)lround(stop[i][c] + (at - i) * (stop[i + 1][c] - stop[i][c]));
    snprintf(out, 8, "#%02x%02x%02x", rgb[0] & 255, rgb[1] & 255, rgb[2] & 255);
}

/* A row of a GPU's batch sizes; bins of one colour are one rectangle. */
static void draw_row(FILE *f, const cluster_series *s, int gpu, double y, double height)
{
    double width = (double)(WIDTH - LEFT - RIGHT) / s->n_bins;
    for (int b = 0, end; b < s->n_bins; b = end) {
        char colour[8], other[8];
        colour_of(batch_at(s, gpu, b) / s->max_batch, colour);
        for (end = b + 1; end < s->n_bins; end++) {
            colour_of(batch_at(s, gpu, end) / s->max_batch, other);
            if (strcmp(colour, other) != 0)
                break;
        }
        fprintf(f, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>", LEFT + b * width, y,
                (end - b) * width + 0.05, height, colour);
    }
    fprintf(f, "\n");
}

static void draw_legend(FILE *f, const cluster_series *s, double y, double height)
{
    int x = WIDTH - RIGHT + 18;
    for (int i = 0; i < 64; i++) {
        char colour[8];
        colour_of((63 - i) / 63.0, colour);
        fprintf(f, "<rect x=\"%d\" y=\"%.2f\" width=\"14\" height=\"%.2f\" fill=\"%s\"/>", x, y + height * i / 64,
                height / 64 + 0.3, colour);
    }
    for (int i = 0; i <= 4; i++)
        fprintf(f, "<text x=\"%d\" y=\"%.1f\">%g</text>\n", x + 20, y + height * (4 - i) / 4 + 4,
                s->max_batch * i / 4.0);
}

static void draw_batches(FILE *f, const cluster_series *s, double y, double row)
{
    char title[64];
    snprintf(title, sizeof title, "batch size of each GPU (limit %d)", s->max_batch);
    draw_title(f, y, title);
    int every = (s->n_gpus + 15) / 16;
    for (int g = 0; g < s->n_gpus; g++) {
        double at = y + row * (s->n_gpus - 1 - g);
        draw_row(f, s, g, at, row > 3 ? row - 1 : row);
        if (g % every == 0)
            fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">GPU %d</text>\n", LEFT - 8, at + row / 2 + 4, g);
    }
    draw_legend(f, s, y, row * s->n_gpus - 1);
}

static void draw_time(FILE *f, const cluster_series *s, double top, double bottom)
{
    double minutes = s->n_bins * s->seconds_per_bin / 60,
           step = minutes > 30 && minutes <= 120 ? 10 : round_step(minutes, 6);
    for (double t = 0; t <= minutes * 1.001; t += step) {
        double x = LEFT + (WIDTH - LEFT - RIGHT) * t / minutes;
        fprintf(f, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" class=\"tick\"/>", x, x, bottom, bottom + 5);
        fprintf(f, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>", x, x, top,
                top + 2 * PANEL + GAP);
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n", x, bottom + 19, t);
    }
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">time (minutes)</text>\n",
            (LEFT + WIDTH - RIGHT) / 2.0, bottom + 38);
}

int cluster_series_write_svg(const cluster_series *s, const char *path, const char *about, err *e)
{
    FILE *f = open_output(path, e);
    if (!f)
        return -1;
    double row = s->n_gpus <= 32 ? ROW : 32.0 * ROW / s->n_gpus, rows = row * s->n_gpus;
    double second = TOP + PANEL + GAP, third = second + PANEL + GAP, bottom = third + rows;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"11\">\n",
            WIDTH, bottom + 66, WIDTH);
    fprintf(f, "<style>.grid{stroke:#e4e4e4;stroke-width:1}.tick{stroke:#444}.title{font-size:13px;font-weight:bold}"
               "text{fill:#222}</style>\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n");
    draw_time(f, s, TOP, bottom);
    draw_line(f, s, TOP, s->requests, "requests per second", "#c0392b");
    draw_line(f, s, second, s->tokens, "tokens per second", "#225ea8");
    draw_batches(f, s, third, row);
    fprintf(f, "<text x=\"%d\" y=\"%.1f\" font-size=\"10\">step times: ", LEFT, bottom + 56);
    write_text(f, about);
    fprintf(f, "</text>\n</svg>\n");
    return close_output(f, path, e);
}
