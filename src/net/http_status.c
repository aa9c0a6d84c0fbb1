/* http_status.c - see http_status.h */
#include "net/http_status.h"

const char *http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } known[] = {{200, "OK"},
                 {204, "No Content"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {409, "Conflict"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {415, "Unsupported Media Type"},
                 {417, "Expectation Failed"},
                 {422, "Unprocessable Content"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {503, "Service Unavailable"},
                 {505, "HTTP Version Not Supported"}};
    for (unsigned i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].status == status)
            return known[i].text;
    return "Status";
}
